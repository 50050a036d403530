import math

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler

from rlfactory.dynamics.schedule import (
    Schedule,
    diffusers_sigmas,
    dynamic_shift,
    shifted,
    uniform_sigmas,
)

# Provenance: diffusion.md 1.0, shift 3, ten steps; diffusers' set_timesteps and Flow-Factory's.
DIFFUSERS = [1, 0.960129, 0.913349, 0.857692, 0.790368, 0.707278, 0.602151, 0.464876, 0.278049]
DIFFUSERS += [0.008929, 0]
UNIFORM = [1, 0.964286, 0.923077, 0.875, 0.818182, 0.75, 0.666667, 0.5625, 0.428571, 0.25, 0]
# The same section's FLUX table: 512 x 512, that is 1024 tokens, six steps.
FLUX = [1, 0.903736, 0.789705, 0.652489, 0.484218, 0.273003, 0]


def test_golden_tables() -> None:
    torch.testing.assert_close(diffusers_sigmas(10, 3), torch.tensor(DIFFUSERS), rtol=0, atol=1e-6)
    torch.testing.assert_close(uniform_sigmas(10, 3), torch.tensor(UNIFORM), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shift", [1.0, 1.7, 3.0, 7.5])
@pytest.mark.parametrize("steps", [1, 4, 10, 28])
def test_diffusers_schedule_is_the_one_of_diffusers(steps: int, shift: float) -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
    scheduler.set_timesteps(steps)
    torch.testing.assert_close(diffusers_sigmas(steps, shift), scheduler.sigmas, rtol=0, atol=1e-6)


# Provenance: diffusion.md 1.0, e^mu at 384, 512, 720 and 1024 pixels, a token for each 16 x 16.
@pytest.mark.parametrize(
    ("edge", "expected"), [(384, 1.740490), (512, 1.877611), (720, 2.224295), (1024, 3.158193)]
)
def test_dynamic_shift_of_flux(edge: int, expected: float) -> None:
    assert dynamic_shift((edge // 16) ** 2) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("tokens", [576, 1024, 2025, 4096])
def test_uniform_schedule_with_a_dynamic_shift_is_that_of_flux(tokens: int) -> None:
    shift = dynamic_shift(tokens)
    scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    scheduler.set_timesteps(sigmas=np.linspace(1, 1 / 6, 6), mu=math.log(shift))
    torch.testing.assert_close(uniform_sigmas(6, shift), scheduler.sigmas, rtol=0, atol=1e-6)
    if tokens == 1024:
        torch.testing.assert_close(scheduler.sigmas, torch.tensor(FLUX), rtol=0, atol=1e-6)


def test_a_schedule_falls_from_exactly_one_to_exactly_zero_for_any_shift() -> None:
    # 1 - 2^-24 in place of 1 would put Flow-SDE's first step beside its pole
    for shift in np.random.default_rng(0).uniform(0.5, 8, 300):
        for spacing in (uniform_sigmas, diffusers_sigmas):
            sigmas = spacing(7, float(shift))
            assert sigmas[0] == 1
            assert sigmas[-1] == 0
            assert (sigmas.diff() < 0).all()


def test_shifting_fixes_the_ends_and_is_undone_by_the_inverse() -> None:
    sigma = torch.linspace(0, 1, 101)
    for shift in (0.5, 1.0, 3.0):
        moved = shifted(sigma, shift)
        assert moved[0] == 0
        assert moved[-1] == 1
        torch.testing.assert_close(shifted(moved, 1 / shift), sigma, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(shifted(sigma, 1.0), sigma)
    # By hand, 3 u / (1 + 2 u): SD3's orientation, towards the noisy end
    expected = torch.tensor([0.25, 0.75, 0.9642857])
    torch.testing.assert_close(shifted(torch.tensor([0.1, 0.5, 0.9]), 3.0), expected)


def test_a_schedule_takes_the_models_shift_unless_it_has_its_own() -> None:
    assert torch.equal(Schedule(kind="uniform", steps=10).sigmas(3.0), uniform_sigmas(10, 3.0))
    assert torch.equal(Schedule(steps=10, shift=1.5).sigmas(3.0), uniform_sigmas(10, 1.5))
    assert torch.equal(Schedule(kind="diffusers").sigmas(2.0, 4), diffusers_sigmas(4, 2.0))
