import pytest
import torch
from torch import Tensor

from rlfactory.algo.value_loss import value_loss

OLD = torch.zeros(2, 2)
RETURNS = torch.ones(2, 2)
# within the range; past it towards the return; past it away from the return; far past the return
VALUES = torch.tensor([[0.1, 0.5], [-0.5, 3.0]])


def test_golden() -> None:
    """By hand: the clipped values are 0.1, 0.2, -0.2 and 0.2."""
    expected = torch.tensor([[0.405, 0.32], [1.125, 2.0]])
    torch.testing.assert_close(value_loss(VALUES, OLD, RETURNS, 0.2), expected)


def gradient(values: Tensor, clip: float | None) -> Tensor:
    values = values.clone().requires_grad_()
    return torch.autograd.grad(value_loss(values, OLD, RETURNS, clip).sum(), values)[0]


def test_only_a_step_towards_the_return_is_stopped() -> None:
    expected = torch.tensor([[-0.9, 0.0], [-1.5, 2.0]])
    torch.testing.assert_close(gradient(VALUES, 0.2), expected)


def test_without_a_clip_it_is_half_the_square() -> None:
    torch.testing.assert_close(value_loss(VALUES, OLD, RETURNS, None), 0.5 * (VALUES - 1) ** 2)
    torch.testing.assert_close(gradient(VALUES, None), VALUES - 1)


@pytest.mark.parametrize("clip", [0.0, 0.2, 1.0, 100.0])
def test_a_clip_only_ever_adds(clip: float) -> None:
    generator = torch.Generator().manual_seed(0)
    values, old, returns = torch.randn(3, 8, 5, generator=generator)
    plain = value_loss(values, old, returns, None)
    assert (value_loss(values, old, returns, clip) >= plain).all()
    assert torch.equal(value_loss(old, old, returns, clip), value_loss(old, old, returns, None))
    torch.testing.assert_close(value_loss(values, old, returns, 100.0), plain)
