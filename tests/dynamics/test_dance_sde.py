from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.dynamics.dance_sde import DanceSDE
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.ops.forward_process import RectifiedFlow

# Provenance: diffusion.md 1.3, DanceGRPO's own function with eta 0.3. Index: mean of the first
# sample, std, log-probs. The mean at step 9 was not printed.
GOLDEN: dict[int, tuple[list[float] | None, float, list[float]]] = {
    0: ([0.492054, -1.012679, 0.271027, 1.961071], 0.056695, [0.172380, 1.453106]),
    5: ([0.480583, -1.028833, 0.299500, 1.905417], 0.086603, [1.150882, 1.450598]),
    9: (None, 0.15, [0.803360, 0.888242]),
}
MIXGRPO = [-0.376605, -0.076889]  # step 5, whose constants its port dropped


@pytest.mark.parametrize("i", GOLDEN)
def test_golden_steps(golden: Any, i: int) -> None:
    mean, std, log_prob = GOLDEN[i]
    step = DanceSDE(eta=0.3).step(golden.x, golden.v, *golden.at(i), next=golden.next)
    assert step.log_prob is not None
    if mean is not None:
        torch.testing.assert_close(step.mean[0].flatten(), torch.tensor(mean), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(step.std.flatten(), torch.full((2,), std), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(step.log_prob, torch.tensor(log_prob), rtol=1e-4, atol=1e-5)


def test_mixgrpos_port_lost_the_constants(golden: Any) -> None:
    given = (golden.x, golden.v, *golden.at(5))
    step = DanceSDE(eta=0.3, constants=False).step(*given, next=golden.next)
    assert step.log_prob is not None
    torch.testing.assert_close(step.log_prob, torch.tensor(MIXGRPO), rtol=1e-4, atol=1e-6)
    whole = DanceSDE(eta=0.3).step(*given, next=golden.next).log_prob
    assert whole is not None
    lost = whole - step.log_prob
    torch.testing.assert_close(lost[0], lost[1])  # so ratios are the same


@pytest.mark.parametrize("i", range(10))
def test_without_noise_it_is_euler_bit_for_bit(golden: Any, i: int) -> None:
    given = (golden.x, golden.v, *golden.at(i))
    step = DanceSDE(eta=0.0).step(*given, noise=torch.randn(golden.x.shape))
    euler = ODE(RectifiedFlow()).step(*given)
    assert torch.equal(step.next, euler.next)
    assert torch.equal(step.mean, euler.mean)


def test_the_image_is_decoded_from_the_last_x0_by_default() -> None:
    assert DanceSDE().decode == "x0"
    assert DanceSDE(decode="sample").decode == "sample"


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
        step = DanceSDE(eta=0.5).step(x, v, t.expand(count), t_next.expand(count), noise=noise)
        x = step.next
    assert x.var().item() == pytest.approx(variance(sigmas[-1]).item(), rel=0.03)
