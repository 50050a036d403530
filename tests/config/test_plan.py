"""The arithmetic of a plan, and its folder."""

import re
from datetime import datetime, tzinfo
from pathlib import Path

import pytest

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError


@pytest.mark.parametrize(
    ("words", "items", "passes"),
    [
        (["algo=nft", "times.count=3"], 3, "10 forward passes to sample an image, 3 to compare"),
        (["algo=grpo", "window=all"], 9, "10 forward passes to sample an image, 9 to learn"),
        (
            ["algo=grpo", "window=all", "model.guidance=4.5"],
            9,
            "20 forward passes to sample an image, 18 to",
        ),
        # FLUX's guidance is an input: no second pass
        (
            ["model=flux", "recipe=none", "times.count=3"],
            3,
            "6 forward passes to sample an image, 3 to compare",
        ),
        (["algo=grpo", "window=fixed"], 3, "10 forward passes to sample an image, 3 to"),
        (["algo=grpo", "window=random_subset"], 2, "10 forward passes to"),
        (["algo=grpo", "window=exp_decay", "window.size=3"], 3, "10 forward passes to"),
        (
            ["algo=grpo", "window=all", "schedule.steps=4"],
            3,
            "4 forward passes to sample an image, 3 to",
        ),
    ],
)
def test_arithmetic(words: list[str], items: int, passes: str) -> None:
    budget = ["prompts_per_iteration=3", "group_size=4", "updates_per_iteration=2"]
    derived = plan_from_words(*words, *budget, "iterations=5", "micro_batch=7").derived
    assert derived["samples"] == "3 groups x 4 = 12 an iteration, 6 an update"
    assert derived["updates"] == "2 an iteration x 5 = 10"
    batches = -(-6 * items // 7)
    assert derived["micro-batches"] == f"{6 * items} items an update / 7 = {batches} accumulated"
    assert derived["passes"].startswith(passes)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["algo=nft"], {"schedule", "times"}),
        (["algo=grpo"], {"schedule", "window"}),
        (["model=tiny_gpt2"], set()),
    ],
)
def test_choices_that_mean_nothing_are_not_shown(words: list[str], shown: set[str]) -> None:
    assert plan_from_words(*words).choices.keys() & {"schedule", "window", "times"} == shown


def test_the_folder_says_what_it_holds() -> None:
    made = plan_from_words("algo=grpo", "seed=7").run_dir
    assert made.parent == Path("outputs")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_grpo-tiny_sd3-shapes-s7", made.name)
    assert plan_from_words("run_dir=there").run_dir == Path("there")


PRICE = "{_target_: rlfactory.regularizer.coefficient.Fixed, value: 0.5}"


def test_rules_look_at_each_term() -> None:
    term = f"{{_target_: rlfactory.regularizer.kl_x.KLMean, coefficient: {PRICE}}}"
    assert plan_from_words("algo=grpo", "regularizer=kl_awm", f"+regularizer.terms.steps={term}")
    with pytest.raises(PlanError, match=r"regularizer\.terms\.steps: .*keeps none"):
        plan_from_words("algo=nft", "regularizer=kl_awm", f"+regularizer.terms.steps={term}")


def test_memory_and_passes_are_foreseen() -> None:
    plain = ("model=flux", "recipe=none")
    derived = plan_from_words(*plain, "hardware.memory_gb=20", "algo=grpo").derived
    # the second update's items are evaluated once more: in half precision their batches differ
    assert derived["passes"].endswith("; 1,344 an iteration")
    assert derived["peak memory"].startswith("about ")
    assert derived["peak memory"].endswith("; the device has 20")
    assert any(
        text.startswith("this needs about") for key, text in derived.items() if "note" in key
    )
    assert plan_from_words("model=tiny_gpt2").derived["peak memory"].startswith("about ")
    roomy = plan_from_words(*plain, "hardware.memory_gb=800").derived
    assert not any("note" in key for key in roomy)


def test_runs_of_one_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            return cls(2026, 1, 31, 12)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlfactory.config.plan.datetime", Clock)
    folders = []
    for _ in range(3):
        folders.append(plan_from_words().run_dir)
        folders[-1].mkdir(parents=True)
    first = Path("outputs/2026-01-31_12-00-00_nft-tiny_sd3-shapes-s0")
    assert folders == [first, Path(f"{first}_2"), Path(f"{first}_3")]


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


@pytest.mark.slow
def test_rows_of_data_are_learned_whole(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n' * 4)
    words = ("model=tiny_gpt2", "algo=sft", "prompts=file", f"prompts.path={tmp_path}/rows.jsonl")
    assert rows(*words)["a sample"] == "learned whole, text prompts as they are"
    cut = rows(*words, "algo.length=8", "reward=length")["a sample"]
    assert cut.startswith("learned up to 8 tokens, at most 48 tokens, temperature 1, ")
