from typing import Any

import pytest
import torch
from diffusers import DDIMScheduler
from torch import Tensor

from rlfactory.dynamics.ddim import DDIM
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.ops.forward_process import VariancePreserving, VelocityPrediction
from rlfactory.dynamics.schedule import Leading, Trailing

PROCESS = VariancePreserving.scaled_linear()
# Provenance: diffusion.md 1.1, ddpo-pytorch's own function: 50 leading steps with offset 1, eta 1.
# Timestep: abar, abar of the next, std, log-probs.
GOLDEN = {
    981: (0.0057755, 0.00728172, 0.45446333, [-0.1772, -0.1987]),
    501: (0.27499884, 0.30229545, 0.29478469, [0.2391, 0.2883]),
    21: (0.98038065, 0.99829602, 0.03947961, [1.2091, 2.0549]),
    1: (0.99829602, 0.99914998, 0.02064822, [-13.2153, -1.7652]),
}


def at(timestep: int) -> tuple[Tensor, Tensor]:
    following = max(timestep - 20, 0)
    return torch.full((2,), timestep / 1000), torch.full((2,), following / 1000)


@pytest.mark.parametrize("timestep", GOLDEN)
def test_golden_steps(golden: Any, timestep: int) -> None:
    abar, abar_next, std, log_prob = GOLDEN[timestep]
    t, t_next = at(timestep)
    assert PROCESS.abar(t)[0].item() == pytest.approx(abar, rel=1e-5)
    assert PROCESS.abar(t_next)[0].item() == pytest.approx(abar_next, rel=1e-5)
    step = DDIM(PROCESS, eta=1.0).step(golden.x, golden.v, t, t_next, next=golden.next)
    assert step.log_prob is not None
    torch.testing.assert_close(step.std.flatten(), torch.full((2,), std), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(step.log_prob, torch.tensor(log_prob), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("final_alpha", ["first", "one"])
@pytest.mark.parametrize("eta", [0.4, 1.0])
def test_every_step_is_that_of_diffusers(golden: Any, final_alpha: Any, eta: float) -> None:
    scheduler = DDIMScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        clip_sample=False,
        set_alpha_to_one=final_alpha == "one",
        steps_offset=1,
    )
    scheduler.set_timesteps(10)
    noise = torch.randn(golden.x.shape, generator=torch.Generator().manual_seed(0))
    times = Leading(steps=10).sigmas(1.0)
    for i, timestep in enumerate(scheduler.timesteps):
        expected = scheduler.step(golden.v, timestep, golden.x, eta=eta, variance_noise=noise)
        step = DDIM(PROCESS, eta=eta, final_alpha=final_alpha).step(
            golden.x, golden.v, times[i].expand(2), times[i + 1].expand(2), noise=noise
        )
        torch.testing.assert_close(step.next, expected.prev_sample, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rescaled", [False, True])
def test_every_step_of_a_predicted_velocity_is_that_of_diffusers(
    golden: Any, rescaled: bool
) -> None:
    scheduler = DDIMScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        clip_sample=False,
        set_alpha_to_one=False,
        prediction_type="v_prediction",
        timestep_spacing="trailing",
        rescale_betas_zero_snr=rescaled,
    )
    scheduler.set_timesteps(10)
    noise = torch.randn(golden.x.shape, generator=torch.Generator().manual_seed(0))
    process, times = VelocityPrediction(scheduler.alphas_cumprod), Trailing(steps=10).sigmas(1.0)
    assert (process.abar(times[0]) == 0) == rescaled
    for i, timestep in enumerate(scheduler.timesteps):
        # not 1: there its first variance rounds to more than 1 - abar', whose root is nan
        expected = scheduler.step(golden.v, timestep, golden.x, eta=0.5, variance_noise=noise)
        step = DDIM(process, eta=0.5).step(
            golden.x, golden.v, times[i].expand(2), times[i + 1].expand(2), noise=noise
        )
        torch.testing.assert_close(step.next, expected.prev_sample, rtol=1e-4, atol=1e-5)


def test_the_last_step_to_a_pure_sample_has_no_noise_unless_it_is_given_some(golden: Any) -> None:
    given = (golden.x, golden.v, *at(1))
    step = DDIM(PROCESS, final_alpha="one").step(*given, next=golden.next)
    assert torch.equal(step.std, torch.zeros(2, 1, 1, 1))
    torch.testing.assert_close(step.mean, PROCESS.to_x0(golden.x, golden.v, at(1)[0]))
    # Provenance: diffusion.md 1.1, DRLX's floor
    floored = DDIM(PROCESS, final_alpha="one", min_std=1e-6).step(*given, next=step.mean)
    assert torch.equal(floored.mean, step.mean)
    assert floored.log_prob is not None
    torch.testing.assert_close(floored.log_prob, torch.full((2,), 12.8966), rtol=1e-4, atol=0)
    # and it does nothing where there is noise
    usual = (golden.x, golden.v, *at(501))
    plain = DDIM(PROCESS).step(*usual, next=golden.next)
    assert torch.equal(DDIM(PROCESS, min_std=1e-6).step(*usual, next=golden.next).std, plain.std)


@pytest.mark.parametrize("timestep", GOLDEN)
def test_without_eta_it_is_the_ode_bit_for_bit(golden: Any, timestep: int) -> None:
    given = (golden.x, golden.v, *at(timestep))
    step = DDIM(PROCESS, eta=0.0).step(*given, noise=torch.randn(golden.x.shape))
    assert torch.equal(step.next, ODE(PROCESS).step(*given).next)


def test_marginals_are_those_of_the_process() -> None:
    # data N(0, s^2): a perfect prediction of noise is linear in x
    data, count = 0.5, 5_000
    generator = torch.Generator().manual_seed(0)
    times = Leading(steps=999).sigmas(1.0)

    def variance(t: Tensor) -> Tensor:
        return PROCESS.abar(t) * data**2 + 1 - PROCESS.abar(t)

    x = torch.randn(count, 1, 1, 1, generator=generator) * variance(times[0]).sqrt()
    for t, t_next in zip(times[:-1], times[1:], strict=True):
        eps = (1 - PROCESS.abar(t)).sqrt() / variance(t) * x
        noise = torch.randn(x.shape, generator=generator)
        x = DDIM(PROCESS).step(x, eps, t.expand(count), t_next.expand(count), noise=noise).next
    assert x.var().item() == pytest.approx(variance(times[-1]).item(), rel=0.06)
