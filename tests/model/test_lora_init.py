"""How adapters begin, against PEFT's own starts."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn

from rlfactory.model.lora_init import first_values

RANK, WIDTH, OUT = 16, 300, 200


def ours(init: Any, seed: int = 0, index: int = 0) -> tuple[Tensor, Tensor]:
    return first_values(init, torch.empty(RANK, WIDTH), torch.empty(OUT, RANK), seed, index)


def pefts(init: Any) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    named = "orthogonal" if init == "orthogonal" else init == "kaiming" or init
    config = LoraConfig(r=RANK, target_modules=["0"], init_lora_weights=named)
    layer: Any = inject_adapter_in_model(config, nn.Sequential(nn.Linear(WIDTH, OUT)))[0]
    return layer.lora_A["default"].weight.detach(), layer.lora_B["default"].weight.detach()


@pytest.mark.parametrize("init", ["gaussian", "kaiming", "orthogonal"])
def test_they_are_distributed_as_pefts(init: str) -> None:
    for mine, theirs in zip(ours(init), pefts(init), strict=True):
        assert mine.shape == theirs.shape
        assert mine.mean().item() == pytest.approx(
            theirs.mean().item(), abs=0.1 * float(theirs.std())
        )
        assert mine.std().item() == pytest.approx(theirs.std().item(), rel=0.1)
        largest = theirs.abs().max().item()
        assert mine.abs().max().item() == pytest.approx(largest, rel=0.3)


@pytest.mark.parametrize("init", ["gaussian", "kaiming", "orthogonal"])
def test_their_product_is_zero(init: str) -> None:
    a, b = ours(init)
    assert a.abs().max() > 0
    torch.testing.assert_close(b @ a, torch.zeros(OUT, WIDTH), rtol=0, atol=1e-6)


def test_orthogonal_ones_are_both_at_work() -> None:
    a, b = ours("orthogonal")
    assert torch.linalg.matrix_rank(a) == torch.linalg.matrix_rank(b) == RANK // 2


@pytest.mark.parametrize("init", ["gaussian", "kaiming", "orthogonal"])
def test_they_are_the_seeds_and_the_layers(init: str) -> None:
    first, same, seed, layer = ours(init), ours(init), ours(init, 1), ours(init, 0, 2)
    assert torch.equal(first[0], same[0])
    assert not torch.equal(first[0], seed[0])
    assert not torch.equal(first[0], layer[0])


def test_convolutions_are_drawn_in_their_own_shape() -> None:
    a, b = torch.empty(4, 3, 3, 3), torch.empty(8, 4, 1, 1)
    for init in ("gaussian", "kaiming", "orthogonal"):
        drawn = first_values(init, a, b, 0, 0)  # type: ignore[arg-type]
        assert [v.shape for v in drawn] == [a.shape, b.shape]
