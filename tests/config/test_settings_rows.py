"""Rows of a plan on samples, learning and evaluations."""

from rlfactory.config.overrides import plan_from_words


def rows(*words: str) -> dict[str, str]:
    return dict(plan_from_words(*words).derived)


def test_images() -> None:
    found = rows("model=flux", "model.size=[512,768]", "evaluation.steps=28")
    assert found["a sample"].startswith("512 x 768 pixels, ")
    assert found["a sample"].endswith("embedded guidance 3.5")
    assert "LoRA of rank " in found["trained"]
    assert "learning rate " in found["trained"]
    # 256 samples, and four of each of 16 prompts, in 28 passes
    assert "; 320 samples an evaluation" in found["evaluated on"]
    assert f"{320 * 28:,} passes" in found["evaluated on"]
    guided = rows("model=sd35", "model.guidance=4.5", "evaluation.steps=28")
    assert f"{2 * 320 * 28:,} passes" in guided["evaluated on"]
    assert "33 frames" not in found["a sample"]
    assert "frames 33" in rows("model=wan")["a sample"]


def test_few_prompts_are_drawn_five_times() -> None:
    found = rows("model=tiny_gpt2", "evaluation.prompts=8", "evaluation.noises=1")
    assert "; 40 samples an evaluation, with those for the diversity" in found["evaluated on"]


def test_texts() -> None:
    found = rows("model=tiny_gpt2", "dynamics.top_p=0.9", "dynamics.length=20")
    assert found["a sample"] == (
        "at most 20 tokens, temperature 1, top_p 0.9, text prompts as they are"
    )
    assert found["trained"] == "all weights; learning rate 0.001"
    asked = rows("model=Qwen/Qwen3-0.6B", f"model.system_prompt={'Be brief. ' * 20}")
    assert "text prompts by the chat template if there is one" in asked["a sample"]
    assert asked["a sample"].endswith("...'")
