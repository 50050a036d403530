import math

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

from rlfactory.dynamics.schedule import (
    Leading,
    Schedule,
    Trailing,
    compress_tail,
    diffusers_sigmas,
    dynamic_shift,
    shifted,
    uniform_sigmas,
    unipc_sigmas,
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


# Provenance: diffusion.md 1.0: mu at 384, 512, 720 and 1024 pixels.
@pytest.mark.parametrize(
    ("edge", "mu"), [(384, 0.554167), (512, 0.63), (720, 0.799440), (1024, 1.15)]
)
def test_a_dynamic_shift_grows_with_the_image(edge: int, mu: float) -> None:
    tokens = (edge // 16) ** 2
    found = Schedule(shift="dynamic").sigmas(3.0, 6, tokens=tokens)
    torch.testing.assert_close(found, uniform_sigmas(6, math.exp(mu)), rtol=0, atol=1e-6)
    if edge == 512:
        torch.testing.assert_close(found, torch.tensor(FLUX), rtol=0, atol=1e-6)


def test_a_dynamic_shift_needs_the_number_of_tokens() -> None:
    with pytest.raises(ValueError, match="schedule.shift=dynamic"):
        Schedule(shift="dynamic").sigmas(3.0)
    assert torch.equal(Schedule().sigmas(3.0, tokens=9), Schedule().sigmas(3.0))


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("steps", [1, 4, 7, 50, 333, 999])
def test_leading_times_are_those_of_ddim(steps: int, offset: int) -> None:
    scheduler = DDIMScheduler(timestep_spacing="leading", steps_offset=offset)
    scheduler.set_timesteps(steps)
    times = Leading(steps=steps, steps_offset=offset).sigmas(3.0)
    assert torch.equal(times[:-1], scheduler.timesteps / 1000)
    assert times[-1] == 0
    assert torch.equal(Leading(steps_offset=offset).sigmas(1.0, steps), times)
    if steps == 50 and offset == 1:
        # Provenance: diffusion.md 1.1
        assert (1000 * times[[0, 24, 48, 49]]).round().tolist() == [981, 501, 21, 1]


@pytest.mark.parametrize("steps", [1, 4, 7, 30, 50, 333, 666])
def test_trailing_times_are_those_of_ddim(steps: int) -> None:
    scheduler = DDIMScheduler(timestep_spacing="trailing", steps_offset=1)
    scheduler.set_timesteps(steps)
    times = Trailing(steps=steps).sigmas(3.0)
    assert torch.equal(times[:-1], scheduler.timesteps / 1000)
    assert (times[0], times[-1]) == (0.999, 0)
    assert torch.equal(Trailing().sigmas(1.0, steps), times)
    assert len({*times.tolist()}) == steps + 1, "no step of length 0"


@pytest.mark.parametrize("steps", [667, 1000])
def test_trailing_steps_do_not_reach_the_end(steps: int) -> None:
    with pytest.raises(ValueError, match=f"{steps} steps"):
        Trailing(steps=steps).sigmas(1.0)


@pytest.mark.parametrize("steps", [1000, 1001, 5000])
def test_more_leading_steps_than_timesteps_are_an_error(steps: int) -> None:
    with pytest.raises(ValueError, match=f"{steps} steps"):
        Leading(steps=steps).sigmas(1.0)


# Provenance: diffusion.md 1.5 and 3.3: MixGRPO-Flash keeps 0.4 of what follows its window of four
# steps, Flash* 0.2, so that 4 + 4 of 25 evaluations are left.
@pytest.mark.parametrize(("share", "left"), [(0.2, 4), (0.4, 8), (1.0, 21), (0.01, 1)])
def test_a_compressed_tail(share: float, left: int) -> None:
    times = uniform_sigmas(25, 3.0)
    short = compress_tail(times, 4, share)
    assert len(short) - 1 == 4 + left
    assert torch.equal(short[:5], times[:5])
    assert short[-1] == 0
    assert (short.diff() < 0).all()
    if share == 1:
        torch.testing.assert_close(short, times)


# Provenance: MixGRPO's sampling_utils.py, executed: `linspace(t, 0, num_post_steps)`.
@pytest.mark.parametrize(
    ("after", "share", "published"), [(21, 0.4, 7), (21, 0.2, 3), (14, 0.4, 5), (3, 0.4, 0)]
)
def test_a_tail_has_one_step_more_than_in_the_published_code(
    after: int, share: float, published: int
) -> None:
    """docs/algo/grpo.md; as many where `share (after + 1)` reaches the next integer, as for 14."""
    found = len(compress_tail(uniform_sigmas(25, 3.0), 25 - after, share)) - 1 - (25 - after)
    assert max(int(share * (after + 1) + 1e-9), 1) - 1 == published
    assert found - published == (0 if after == 14 else 1)


def test_a_compressed_tail_is_even_in_index() -> None:
    times = torch.tensor([1.0, 0.9, 0.7, 0.4, 0.0])
    expected = torch.tensor([1.0, 0.9, 0.55, 0.0])
    torch.testing.assert_close(compress_tail(times, 1, 0.7), expected)
    assert torch.equal(compress_tail(times, 4, 0.2), times)
    assert len(compress_tail(torch.linspace(1, 0, 101), 0, 0.29)) == 30


@pytest.mark.parametrize("steps", [1, 4, 20])
@pytest.mark.parametrize("shift", [1.0, 3.0, 5.0])
def test_unipc_levels_are_those_of_its_scheduler(steps: int, shift: float) -> None:
    options = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": shift}
    scheduler = UniPCMultistepScheduler(**options)
    scheduler.set_timesteps(steps)
    found = unipc_sigmas(steps, shift)
    assert found[0] == 1
    torch.testing.assert_close(found, scheduler.sigmas, rtol=0, atol=2e-6)
    assert torch.equal(Schedule(kind="unipc").sigmas(shift, steps), found)
