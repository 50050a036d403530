import pytest
import torch
from diffusers import DDIMScheduler, DDPMScheduler
from torch import Tensor

from rlfactory.dynamics.ops.forward_process import (
    ForwardProcess,
    RectifiedFlow,
    VariancePreserving,
    VelocityPrediction,
)

VP = VariancePreserving.scaled_linear()


V = VelocityPrediction.scaled_linear()


@pytest.fixture(params=[RectifiedFlow(), VP, V], ids=lambda process: type(process).__name__)
def process(request: pytest.FixtureRequest) -> ForwardProcess:
    chosen: ForwardProcess = request.param
    return chosen


def sample() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x0, eps = torch.randn(2, 5, 3, 4, 4, generator=generator).unbind()
    return x0, eps, torch.rand(5, generator=generator)


def test_a_perfect_prediction_gives_back_the_sample_and_the_noise(process: ForwardProcess) -> None:
    x0, eps, t = sample()
    x, prediction = process.noise(x0, eps, t), process.target(x0, eps, t)
    torch.testing.assert_close(process.to_x0(x, prediction, t), x0, rtol=0, atol=1e-5)
    torch.testing.assert_close(process.to_eps(x, prediction, t), eps, rtol=0, atol=1e-5)


def test_any_prediction_splits_x_into_a_sample_and_noise(process: ForwardProcess) -> None:
    x, prediction, t = sample()
    x0, eps = process.to_x0(x, prediction, t), process.to_eps(x, prediction, t)
    torch.testing.assert_close(process.noise(x0, eps, t), x, rtol=0, atol=1e-5)
    alpha, sigma = process.alpha_sigma(t.view(-1, 1, 1, 1))
    torch.testing.assert_close(alpha * x0 + sigma * eps, x, rtol=0, atol=1e-5)


def test_the_ends_are_the_sample_and_the_noise() -> None:
    x0, eps, _ = sample()
    assert torch.equal(RectifiedFlow().noise(x0, eps, torch.zeros(5)), x0)
    assert torch.equal(RectifiedFlow().noise(x0, eps, torch.ones(5)), eps)


def test_by_hand() -> None:
    # x = 0.25 * 4 + 0.75 * 8; v = 8 - 4
    x0, eps, t = torch.tensor([[4.0]]), torch.tensor([[8.0]]), torch.tensor([0.75])
    assert RectifiedFlow().noise(x0, eps, t).item() == 7
    assert RectifiedFlow().target(x0, eps, t).item() == 4
    assert RectifiedFlow().to_x0(torch.tensor([[7.0]]), torch.tensor([[4.0]]), t).item() == 4
    assert RectifiedFlow().to_eps(torch.tensor([[7.0]]), torch.tensor([[4.0]]), t).item() == 8


def test_the_target_is_the_derivative_in_time() -> None:
    x0, eps, t = sample()
    process, h = RectifiedFlow(), 1e-3
    slope = (process.noise(x0, eps, t + h) - process.noise(x0, eps, t - h)) / (2 * h)
    torch.testing.assert_close(slope, process.target(x0, eps, t), rtol=1e-2, atol=1e-2)


def test_following_a_perfect_prediction_leads_along_the_noising(process: ForwardProcess) -> None:
    x0, eps, t = sample()
    t_next = 0.7 * t
    x = process.noise(x0, eps, t)
    followed = process.ode_step(x.double(), process.target(x0, eps, t), t, t_next)
    assert followed.dtype == torch.float32
    torch.testing.assert_close(followed, process.noise(x0, eps, t_next), rtol=0, atol=1e-5)


def test_a_flow_is_followed_by_eulers_step_bit_for_bit() -> None:
    x, v, t = sample()
    t_next = 0.7 * t
    euler = x + v * (t_next - t).view(-1, 1, 1, 1)
    assert torch.equal(RectifiedFlow().ode_step(x, v, t, t_next), euler)


def test_velocities() -> None:
    x0, eps, t = sample()
    assert torch.equal(RectifiedFlow().velocity(x0, eps, t), eps - x0)
    # the variance-preserving circle: x' of x = cos x0 + sin eps, at a right angle to x
    x, v = VP.noise(x0, eps, t), VP.velocity(x0, eps, t)
    alpha, sigma = VP.alpha_sigma(t.view(-1, 1, 1, 1))
    torch.testing.assert_close(alpha * x - sigma * v, x0, rtol=0, atol=1e-5)
    torch.testing.assert_close(sigma * x + alpha * v, eps, rtol=0, atol=1e-5)
    scheduler = DDPMScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
    timesteps = (1000 * t).round().long()
    torch.testing.assert_close(scheduler.get_velocity(x0, eps, timesteps), v)
    torch.testing.assert_close(scheduler.add_noise(x0, eps, timesteps), x)


def test_a_predicted_velocity_tells_the_sample_where_there_is_only_noise() -> None:
    x0, eps, _ = sample()
    process, t = VelocityPrediction(torch.tensor([0.9, 0.0])), torch.full((5,), 0.001)
    x, v = process.noise(x0, eps, t), process.target(x0, eps, t)
    assert torch.equal(x, eps)
    assert torch.equal(process.to_x0(x, v, t), x0)


def test_the_table_is_that_of_stable_diffusion_and_ends_at_its_ends() -> None:
    scheduler = DDIMScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
    table = scheduler.alphas_cumprod
    timesteps = torch.arange(1000)
    assert torch.equal(VP.abar(timesteps / 1000), table)
    torch.testing.assert_close(VP.abar(torch.tensor([-0.3, 1.0, 1.2])), table[[0, 999, 999]])
    # the nearest timestep, where a time lies between two
    assert VP.abar(torch.tensor(0.5004)) == table[500]
    assert VP.abar(torch.tensor(0.5006)) == table[501]
