"""What a run takes, counted on the engine: beside the plan, and beside what tensors weigh."""

import pytest
import torch
from torch import nn

from rlfactory.config.memory.devices import gpu_models
from rlfactory.config.memory.peak_memory import estimate, peak_of, traits_of
from rlfactory.config.overrides import plan_from_words
from rlfactory.tools.estimate import count, show
from rlfactory.tools.fake_tensors import (
    HALF,
    LAUNCHES,
    MOVED,
    Counting,
    fake_tensors,
    flops_of,
    no_work,
    seconds_on,
    with_fake_tensors,
)

SMALL = ["group_size=4", "prompts_per_iteration=8", "evaluation.prompts=4", "evaluation.grid=4"]
IMAGES = ["schedule.steps=3", "micro_batch=8", "sample_batch=8", "reward=compressibility"]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("model=tiny_sd3 algo=nft", marks=pytest.mark.slow),
        pytest.param(
            "model=tiny_flux algo=grpo window=all", marks=[pytest.mark.slow, pytest.mark.whole]
        ),
    ],
)
def test_an_image_run_is_what_its_plan_says(words: str) -> None:
    config = plan_from_words(*words.split(), *SMALL, *IMAGES, "hardware.gpu=h100").config
    found, plan = count(config), estimate(config, traits_of(config))
    assert (
        found.parameters == found.trainable == pytest.approx(plan["Adam's moments"] / 8, rel=0.02)
    )
    # of tiny networks most is not activations of blocks
    assert found.peak == pytest.approx(peak_of(plan), rel=0.3)
    assert flops_of(found.work["learning"]) > 2 * flops_of(found.work["sampling"]) / 3
    assert found.work["learning"][LAUNCHES] > 100
    assert flops_of(found.evaluation) > 0


@pytest.mark.slow
@pytest.mark.whole
def test_twice_the_steps_are_twice_the_work() -> None:
    words = ["model=tiny_sd3", "algo=nft", *SMALL, *IMAGES]
    few, many = (count(plan_from_words(*words, f"schedule.steps={n}").config) for n in (3, 6))
    learning = [flops_of(counted.work["learning"]) for counted in (few, many)]
    sampling = [flops_of(counted.work["sampling"]) for counted in (few, many)]
    assert sampling[1] / sampling[0] == pytest.approx(2, rel=0.02)
    assert learning[1] == pytest.approx(learning[0], rel=0.01)


@pytest.mark.slow
def test_a_language_model_is_counted() -> None:
    words = ["model=tiny_gpt2", *SMALL, "dynamics.length=8", "hardware.gpu=h100"]
    said = show(plan_from_words(*words).config)
    assert "s an iteration on h100" in said
    assert {line.split()[0] for line in said.splitlines()} >= {"sampling", "learning", "memory"}


def test_storages_and_flops_are_counted() -> None:
    with Counting() as live:
        x = torch.empty(1000)
        seen = x.view(10, 100)  # the same storage
        assert live.now == 4000
        y = seen + 1
        assert live.now == live.peak == 8000
        del y
        assert (live.now, live.peak) == (4000, 8000)
        del seen, x
        assert live.now == 0
    layer = nn.Linear(16, 32)
    with fake_tensors() as mode:
        with_fake_tensors(layer, mode)
        given = torch.empty(8, 16)
        with Counting() as counting:
            layer(given).sum().backward()
    assert flops_of(counting.work) == 2 * (2 * 8 * 16 * 32)  # forward, and the weight's gradient


def test_a_gpu_waits_for_kernels_or_launches() -> None:
    gpu, work = gpu_models()["h100"], no_work()
    work[LAUNCHES], work[MOVED] = 1e6, 1e9
    assert seconds_on(gpu, work) == pytest.approx(10.0)
    work[HALF] = 1e16
    kernels = 1e16 / (0.62 * 989e12) + 1e9 / (0.75 * 3350e9)
    assert seconds_on(gpu, work) == pytest.approx(kernels / 0.7)
