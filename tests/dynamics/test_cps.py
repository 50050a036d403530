import math
from typing import Any

import pytest
import torch

from rlfactory.dynamics.base import gaussian_log_prob
from rlfactory.dynamics.cps import CPS
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.ops.forward_process import RectifiedFlow

# Provenance: diffusion.md 1.4, Flow-CPS's own function with noise 0.8. Index: mean of the first
# sample, std, log-probs.
GOLDEN = {
    0: ([0.159705, -0.347981, 0.104852, 0.631676], 0.917090, [-0.507299, -0.356930]),
    5: ([0.229973, -0.618743, 0.253934, 0.880192], 0.634038, [-0.275444, -0.117779]),
    9: ([0.45, -1.10, 0.40, 1.75], 0.0, [-0.001250, -0.005977]),
}


@pytest.mark.parametrize("i", GOLDEN)
def test_golden_steps(golden: Any, i: int) -> None:
    mean, std, log_prob = GOLDEN[i]
    step = CPS(noise_level=0.8).step(golden.x, golden.v, *golden.at(i), next=golden.next)
    assert step.log_prob is not None
    torch.testing.assert_close(step.mean[0].flatten(), torch.tensor(mean), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(step.std.flatten(), torch.full((2,), std), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(step.log_prob, torch.tensor(log_prob), rtol=1e-4, atol=1e-6)


def test_the_density_is_that_of_the_normal_step(golden: Any) -> None:
    given = (golden.x, golden.v, *golden.at(5))
    step = CPS(noise_level=0.8, log_prob_of="gaussian").step(*given, next=golden.next)
    assert step.log_prob is not None
    expected = gaussian_log_prob(golden.next, step.mean, step.std)
    torch.testing.assert_close(step.log_prob, expected)
    # and the published one is the same up to the scale 2 std^2 and the constants
    published = CPS(noise_level=0.8).step(*given, next=golden.next).log_prob
    assert published is not None
    std = GOLDEN[5][1]
    constants = math.log(std) + 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(step.log_prob, published / (2 * std**2) - constants)


@pytest.mark.parametrize("i", range(10))
def test_without_noise_it_is_euler_within_ulps(golden: Any, i: int) -> None:
    given = (golden.x, golden.v, *golden.at(i))
    step = CPS(noise_level=0.0).step(*given, noise=torch.randn(golden.x.shape))
    euler = ODE(RectifiedFlow()).step(*given)
    torch.testing.assert_close(step.next, euler.next, rtol=1e-6, atol=5e-7)


@pytest.mark.parametrize("i", range(10))
@pytest.mark.parametrize("level", [0.3, 0.8, 1.0])
def test_the_noise_of_the_flow_is_kept_in_all(golden: Any, i: int, level: float) -> None:
    # x0 = 0 and unit noise: the mean is what remains of the old noise, and with the new noise it
    # makes sigma_next, the flow's own coefficient
    t, t_next = golden.at(i)
    eps = torch.ones(2, 1, 2, 2)
    x = t.view(2, 1, 1, 1) * eps
    step = CPS(noise_level=level).step(x, eps, t, t_next, noise=torch.zeros_like(eps))
    total = (step.mean**2 + step.std**2).sqrt()
    expected = t_next.view(2, 1, 1, 1).expand_as(total)
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-6)
