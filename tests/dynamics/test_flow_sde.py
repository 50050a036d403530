import math

import pytest
import torch
from torch import Tensor

from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.ops.forward_process import RectifiedFlow
from rlfactory.dynamics.schedule import uniform_sigmas

SIGMAS = uniform_sigmas(10, 3.0)

# Provenance: diffusion.md appendix A (inputs) and 1.2: Flow-GRPO's own function, noise 0.7,
# uniform schedule of shift 3. Index: mean of the first sample, g (so std is g sqrt(-dt)), log-
# probs.
X = torch.tensor([[0.5, -1, 0.25, 2], [1.5, 0.1, -0.3, -0.7]]).view(2, 1, 2, 2)
V = torch.tensor([[0.2, 0.4, -0.6, 1], [-1, 0.3, 0.5, 0.05]]).view(2, 1, 2, 2)
NEXT = torch.tensor([[0.45, -1.05, 0.40, 1.80], [1.60, 0.05, -0.40, -0.70]]).view(2, 1, 2, 2)
GOLDEN = {
    0: ([0.370357, -0.769286, 0.210179, 1.474286], 3.704050, [-0.620239, -0.623408]),
    1: ([0.348393, -0.737831, 0.210110, 1.383313], 3.637305, [-0.688415, -0.681430]),
    5: ([0.438417, -0.959833, 0.291833, 1.732917], 1.212435, [0.105920, 0.108238]),
    9: ([0.396917, -1.042833, 0.416333, 1.525417], 0.404145, [0.439786, 0.639681]),
}


def at(i: int, count: int = 2) -> tuple[Tensor, Tensor]:
    return SIGMAS[i].expand(count), SIGMAS[i + 1].expand(count)


@pytest.mark.parametrize("i", GOLDEN)
def test_golden_steps(i: int) -> None:
    mean, g, log_prob = GOLDEN[i]
    step = FlowSDE(noise_level=0.7).step(X, V, *at(i), next=NEXT)
    assert step.log_prob is not None
    torch.testing.assert_close(step.mean[0].flatten(), torch.tensor(mean), rtol=1e-5, atol=1e-6)
    std = g * math.sqrt(SIGMAS[i] - SIGMAS[i + 1])
    torch.testing.assert_close(step.std.flatten(), torch.full((2,), std), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(step.log_prob, torch.tensor(log_prob), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("i", range(10))
def test_without_noise_it_is_euler_bit_for_bit(i: int) -> None:
    step = FlowSDE(noise_level=0.0).step(X, V, *at(i), noise=torch.randn(X.shape))
    euler = ODE(RectifiedFlow()).step(X, V, *at(i))
    assert torch.equal(step.next, euler.next)
    assert torch.equal(step.mean, euler.mean)


def test_a_step_from_pure_noise_is_finite_for_any_schedule() -> None:
    for shift in torch.linspace(0.6, 7, 40).tolist():
        sigmas = uniform_sigmas(8, shift)
        step = FlowSDE(noise_level=0.7).step(
            X, V, sigmas[0].expand(2), sigmas[1].expand(2), noise=torch.zeros_like(X)
        )
        assert step.log_prob is not None
        assert torch.isfinite(step.log_prob).all()
        assert step.mean.abs().max() < 3
        assert (step.std < 1).all()


def test_rows_may_stand_at_different_times() -> None:
    t, t_next = SIGMAS[torch.tensor([0, 5])], SIGMAS[torch.tensor([1, 6])]
    step = FlowSDE(noise_level=0.7).step(X, V, t, t_next, next=NEXT)
    assert step.log_prob is not None
    torch.testing.assert_close(
        step.log_prob, torch.tensor([GOLDEN[0][2][0], GOLDEN[5][2][1]]), rtol=1e-4, atol=1e-6
    )


def test_marginals_are_those_of_the_ode() -> None:
    # For data N(0, s^2) the perfect velocity is linear in x, and at every time the marginal is
    # normal with variance (1 - t)^2 s^2 + t^2, which short stochastic steps must preserve.
    data, count, steps = 0.5, 20_000, 400
    generator = torch.Generator().manual_seed(0)

    def variance(t: Tensor) -> Tensor:
        return (1 - t) ** 2 * data**2 + t**2

    sigmas = torch.linspace(0.95, 0.05, steps + 1)
    x = torch.randn(count, 1, 1, 1, generator=generator) * variance(sigmas[0]).sqrt()
    for t, t_next in zip(sigmas[:-1], sigmas[1:], strict=True):
        v = (t - (1 - t) * data**2) / variance(t) * x
        noise = torch.randn(x.shape, generator=generator)
        step = FlowSDE(noise_level=0.7).step(
            x, v, t.expand(count), t_next.expand(count), noise=noise
        )
        x = step.next
    assert x.var().item() == pytest.approx(variance(sigmas[-1]).item(), rel=0.03)
    assert abs(x.mean().item()) < 0.02
