import pytest
import torch
from torch import Tensor

from rlfactory.dynamics.process import Process, RectifiedFlow


@pytest.fixture(params=[RectifiedFlow()], ids=lambda process: process.name)
def process(request: pytest.FixtureRequest) -> Process:
    chosen: Process = request.param
    return chosen


def sample() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x0, eps = torch.randn(2, 5, 3, 4, 4, generator=generator).unbind()
    return x0, eps, torch.rand(5, generator=generator)


def test_a_perfect_prediction_gives_back_the_sample_and_the_noise(process: Process) -> None:
    x0, eps, t = sample()
    x, prediction = process.noise(x0, eps, t), process.target(x0, eps, t)
    torch.testing.assert_close(process.to_x0(x, prediction, t), x0, rtol=0, atol=1e-5)
    torch.testing.assert_close(process.to_eps(x, prediction, t), eps, rtol=0, atol=1e-5)


def test_any_prediction_splits_x_into_a_sample_and_noise(process: Process) -> None:
    x, prediction, t = sample()
    x0, eps = process.to_x0(x, prediction, t), process.to_eps(x, prediction, t)
    torch.testing.assert_close(process.noise(x0, eps, t), x, rtol=0, atol=1e-5)


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
