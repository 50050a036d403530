"""Notes on what was typed in vain."""

from pathlib import Path

import pytest

from rlfactory.config.overrides import plan_from_words

TEXTS = "model=tiny_gpt2"


def notes(*words: str) -> list[str]:
    derived = plan_from_words(*words).derived
    return [text for name, text in derived.items() if name.startswith("note")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algo=nft", "window=random_contiguous"], "window has no effect: algo=nft does not read"),
        (["algo=nft", "window.skip_last=2"], "window.skip_last has no effect"),
        (["algo=nft", "tail=0.5"], "tail has no effect: algo=nft"),
        (["algo=grpo", "times=uniform"], "times has no effect: algo=grpo"),
        (["algo=grpo", "old.decay=0.5"], "old.decay has no effect: nothing here reads"),
        (["evaluation.weights=policy", "ema.decay=0.5", "algo=grpo"], "ema.decay has no effect"),
        ([TEXTS, "schedule.steps=5"], "schedule.steps has no effect: model=tiny_gpt2"),
        ([TEXTS, "advantage=global"], "advantage has no effect"),
        ([TEXTS, "latent_storage=float16"], "latent_storage has no effect: model=tiny_gpt2"),
        (["model.lora_rank=8"], "model.lora_rank has no effect without model.finetune=lora"),
        (["algo=grpo", "algo=nft"], "algo is given 2 times, and the last one counts: algo=nft"),
        (["iterations=3", "iterations=4"], "the last one counts: iterations=4"),
        (["optimizer.lr=100"], "optimizer.lr=100 is far above"),
        ([TEXTS, "prompts=shapes"], "these prompts ask for images, and the model makes texts"),
        (["model=sd35", "prompts=shapes"], "captions are for the small models"),
        (["advantage=tracker"], "12 rewards of a group are fewer than advantage.min_count=16"),
    ],
    ids=str,
)
def test_what_has_no_effect_is_noted(words: list[str], said: str) -> None:
    assert any(said in text for text in notes(*words))


@pytest.mark.parametrize(
    "words",
    [
        ["algo=grpo", "window=random_contiguous", "tail=0.5", "latent_storage=float16"],
        ["algo=nft", "times=uniform", "times.count=3", "old.decay=0.5", "ema.decay=0.5"],
        ["model.finetune=lora", "model.lora_rank=8", "micro_batch=12", "optimizer.lr=0.05"],
        ["iterations=4", "iterations=4", "schedule.steps=5"],
        [TEXTS, "dynamics.length=8"],
        ["advantage=tracker", "advantage.min_count=12"],
    ],
    ids=str,
)
def test_what_has_an_effect_is_not(words: list[str]) -> None:
    assert notes(*words, "hardware.memory_gb=80") == []


def test_prompts_that_come_up_again_in_an_iteration_are_noted(tmp_path: Path) -> None:
    file = tmp_path / "five.txt"
    file.write_text("\n".join("abcde"))
    words = ["prompts=file", f"prompts.path={file}", "reward=compressibility", "group_size=2"]
    # eight samples divide into four updates, ten do not
    assert (
        "5 prompts for 12 groups an iteration: each comes up 2 times;"
        " prompts_per_iteration=4 has none twice"
    ) in notes(*words, "prompts_per_iteration=12", "updates_per_iteration=4")
    assert not any("comes up" in text for text in notes(*words, "prompts_per_iteration=8"))


def test_memory_is_that_of_the_batches_that_there_can_be() -> None:
    small, huge = (
        plan_from_words(f"micro_batch={items}", f"sample_batch={samples}").derived["peak memory"]
        for items, samples in ((192, 256), (10**6, 10**6))
    )
    assert small == huge
