"""Flow-GRPO's sampler for Wan."""

import math

import pytest
import torch

from rlfactory.dynamics.linear_sde import LinearSDE
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.ops.forward_process import RectifiedFlow
from rlfactory.dynamics.schedule import unipc_sigmas

SIGMAS = unipc_sigmas(20, 3.0)
X, V, NEXT = torch.randn(3, 2, 4, 3, 2, 2, generator=torch.Generator().manual_seed(0)).unbind()


def published(i: int) -> tuple[torch.Tensor, float]:
    """Mean and standard deviation by the formula of Flow-GRPO's code for Wan, in float64."""
    sigma, after, first = (float(SIGMAS[j]) for j in (i, i + 1, 1))
    std, dt = first * sigma, after - sigma
    weight = std**2 / (2 * sigma) * dt
    mean = X.double() * (1 + weight) + V.double() * (1 + std**2 * (1 - sigma) / (2 * sigma)) * dt
    return mean, std * math.sqrt(-dt)


@pytest.mark.parametrize("i", [0, 1, 10, 19])
def test_steps_are_those_of_the_published_code(i: int) -> None:
    dynamics = LinearSDE(noise_level=float(SIGMAS[1]))
    step = dynamics.step(X, V, SIGMAS[i].expand(2), SIGMAS[i + 1].expand(2), next=NEXT)
    mean, std = published(i)
    torch.testing.assert_close(step.mean.double(), mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(step.std.flatten().double(), torch.full((2,), std).double())
    squares = ((NEXT.double() - mean) / std).square().flatten(1).mean(1)
    expected = -squares / 2 - math.log(std) - math.log(2 * math.pi) / 2
    assert step.log_prob is not None
    torch.testing.assert_close(step.log_prob.double(), expected, rtol=1e-4, atol=1e-5)


def test_the_second_noise_level_is_what_the_option_says() -> None:
    assert float(SIGMAS[1]) == pytest.approx(0.983, abs=5e-4)


def test_without_noise_it_is_euler() -> None:
    t, after = SIGMAS[0].expand(2), SIGMAS[1].expand(2)
    step = LinearSDE(noise_level=0.0).step(X, V, t, after, noise=torch.randn(X.shape))
    assert torch.equal(step.next, ODE(RectifiedFlow()).step(X, V, t, after).next)
