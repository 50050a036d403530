"""Notes on what was typed: in vain, noise for nothing, a full-size model as a small one."""

from pathlib import Path

import pytest

from rlfactory.config.memory import devices
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.hardware.process_environment import GPU

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


MEDIUM = "stabilityai/stable-diffusion-3.5-medium"


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["algo=nft", "dynamics=flow_sde"], 1),
        (["model=sd14", "algo=awm", "dynamics=ddim"], 1),
        (["model=tiny_sd", "algo=awm"], 0),
        (["algo=nft", "dynamics=dpm_solver"], 0),
        (["algo=grpo", "dynamics=cps"], 0),
    ],
    ids=str,
)
def test_noise_that_teaches_nothing_is_noted_where_it_was_chosen(
    words: list[str], count: int
) -> None:
    assert sum("dynamics=ode has none" in text for text in notes(*words)) == count


@pytest.mark.parametrize(
    ("memory", "word", "device"),
    [
        ([], "hardware=auto", "the CPU: no GPU was found"),
        ([], "hardware=cpu", "the CPU"),
        ([], "hardware=gpu", "a GPU; none was found here"),
        ([81_920], "hardware=auto", "1 GPU of 80 GiB"),
        ([81_920, 81_920], "hardware=auto", "2 GPUs of 80 GiB"),
        ([None], "hardware=auto", "1 GPU"),
        ([81_920], "hardware=cpu", "the CPU"),
    ],
)
def test_the_device_is_named(
    memory: list[int | None], word: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [GPU(str(i), f"GPU-{i}", size) for i, size in enumerate(memory)]
    monkeypatch.setattr(devices, "visible_gpus", lambda: gpus)
    assert plan_from_words(word).derived["device"] == device


def test_a_full_size_model_by_a_small_ones_option_is_noted() -> None:
    typed = [f"model.path={MEDIUM}", "model.size=512"]
    assert any(f"model=sd35 model.path={MEDIUM}" in text for text in notes(*typed))
    assert not any("of full size" in text for text in notes("model=sd35", *typed))
    assert not any("of full size" in text for text in notes("model.path=zoo:tiny_sd3"))


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["model=flux", f"model.path={MEDIUM}"], f"rlfactory model=sd35 model.path={MEDIUM}"),
        (
            ["model=sd14", "model.path=black-forest-labs/FLUX.1-dev"],
            "rlfactory model=flux model.path=black-forest-labs/FLUX.1-dev",
        ),
    ],
    ids=str,
)
def test_a_published_model_of_another_family_is_refused(words: list[str], fix: str) -> None:
    with pytest.raises(PlanError) as refused:
        plan_from_words(*words)
    (problem,) = refused.value.problems
    assert (problem.key, problem.fix) == ("model.path", fix)
