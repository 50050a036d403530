"""Noise levels are those of the pipeline's own scheduler, however it is configured."""

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from diffusers import DPMSolverMultistepScheduler, FlowMatchEulerDiscreteScheduler

from rlfactory.dynamics.schedule import Schedule, diffusers_sigmas, uniform_sigmas
from rlfactory.model.pipelines.noise_levels import flow_resolution, noise_levels
from rlfactory.utils.errors import ModelError

SHAPE, TOKENS = (16, 64, 64), 1024
# mu is linear: base_shift at base_image_seq_len, max_shift at max_image_seq_len
DYNAMIC = {
    "use_dynamic_shifting": True,
    "base_shift": 0.3,
    "max_shift": 0.9,
    "base_image_seq_len": 512,
    "max_image_seq_len": 8192,
}
MU = 0.3 + 0.6 * 512 / 7680
CONFIGURED: list[dict[str, Any]] = [
    {"shift": 3.0},
    {"shift": 2.0, "shift_terminal": 0.02},
    {"shift": 3.0, "use_karras_sigmas": True},
    {"shift": 3.0, "use_exponential_sigmas": True},
    DYNAMIC,
    DYNAMIC | {"shift_terminal": 0.1},
    DYNAMIC | {"time_shift_type": "linear"},
]


@pytest.mark.parametrize("options", CONFIGURED)
@pytest.mark.parametrize("kind", ["uniform", "diffusers"])
def test_levels_are_the_pipelines_own(
    options: dict[str, Any], kind: Literal["uniform", "diffusers"]
) -> None:
    """`diffusers`: as SD3's pipeline asks for them; `uniform`: as FLUX's and Flow-Factory do."""
    scheduler = FlowMatchEulerDiscreteScheduler(**options)
    steps, mu = 6, {"mu": MU} if "base_shift" in options else {}
    if kind == "uniform":
        scheduler.set_timesteps(sigmas=np.linspace(1, 1 / steps, steps), **mu)
    else:
        scheduler.set_timesteps(steps, **mu)
    found = noise_levels(Schedule(kind=kind), flow_resolution(SHAPE, TOKENS, scheduler), steps)
    assert (found[0], found[-1]) == (1, 0)
    torch.testing.assert_close(found, scheduler.sigmas, rtol=0, atol=1e-6)


@pytest.mark.parametrize("shift", [2.0, "dynamic"])
def test_a_shift_that_is_typed_replaces_the_schedulers(shift: Any) -> None:
    resolution = flow_resolution(SHAPE, TOKENS, FlowMatchEulerDiscreteScheduler(**DYNAMIC))
    found = noise_levels(Schedule(shift=shift), resolution, 6)
    expected = 2.0 if shift == 2.0 else math.exp(0.63)  # FLUX's mu at 1024 tokens
    torch.testing.assert_close(found, uniform_sigmas(6, expected), rtol=0, atol=1e-6)


def test_as_published_levels_are_the_formulas_to_the_bit() -> None:
    resolution = flow_resolution(SHAPE, TOKENS, FlowMatchEulerDiscreteScheduler(shift=3.0))
    for kind, formula in (("uniform", uniform_sigmas), ("diffusers", diffusers_sigmas)):
        found = noise_levels(Schedule(kind=kind), resolution, 10)
        assert torch.equal(found, formula(10, 3.0))


def test_a_scheduler_that_no_schedule_follows_is_refused() -> None:
    scheduler = DPMSolverMultistepScheduler(
        use_flow_sigmas=True,
        flow_shift=3.0,
        prediction_type="flow_prediction",
        algorithm_type="sde-dpmsolver++",
    )
    said = "DPMSolverMultistepScheduler with algorithm_type=sde-dpmsolver.., which no schedule"
    with pytest.raises(ModelError, match=said):
        flow_resolution(SHAPE, TOKENS, scheduler)
