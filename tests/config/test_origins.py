"""Notes on what was typed: noise for nothing, a full-size model as a small one."""

import pytest

from rlfactory.config.memory import devices
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.hardware.environment import GPU

MEDIUM = "stabilityai/stable-diffusion-3.5-medium"


def notes(*words: str) -> list[str]:
    derived = plan_from_words(*words).derived
    return [text for key, text in derived.items() if key.startswith("note")]


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
