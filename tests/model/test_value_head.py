"""The critic's head: where it begins, and what it moves."""

from typing import Any

import pytest
import torch

from rlfactory.model.value_head import ValueHead

HIDDEN = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))


def head(**options: Any) -> ValueHead:
    chosen = {"shape": "mlp", "start": "zero", "detach": True, "seed": 0} | options
    return ValueHead(8, **chosen)


@pytest.mark.parametrize("shape", ["mlp", "linear"])
def test_zero_starts_at_zero_and_can_learn(shape: Any) -> None:
    made = head(shape=shape)
    values = made(HIDDEN)
    assert torch.equal(values, torch.zeros(3, 5))
    values.sum().backward()
    last = list(made.layers)[-1]
    assert last.weight.grad.abs().max() > 0


def test_orthogonal_layers_are_orthogonal() -> None:
    first, _, last = head(start="orthogonal").layers
    torch.testing.assert_close(first.weight.T @ first.weight, 2 * torch.eye(8))
    assert last.weight.norm().item() == pytest.approx(1.0, abs=1e-5)
    assert first.bias.abs().max() == last.bias.abs().max() == 0


@pytest.mark.parametrize("start", ["orthogonal", "default"])
def test_the_start_is_the_seeds_and_leaves_the_global_generator_alone(start: Any) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, same, other = (head(start=start, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(one(HIDDEN), same(HIDDEN))
    assert not torch.equal(one(HIDDEN), other(HIDDEN))


@pytest.mark.parametrize("detach", [True, False])
def test_its_gradient_reaches_the_trunk_unless_detached(detach: bool) -> None:
    hidden = HIDDEN.clone().requires_grad_()
    head(start="default", detach=detach)(hidden).sum().backward()
    assert (hidden.grad is None) == detach


def test_values_are_in_float32() -> None:
    assert head(start="default")(HIDDEN.half()).dtype == torch.float32
