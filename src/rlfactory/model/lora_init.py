"""How adapters begin: always without effect, as B A is zero whatever A is.

Starts that move the base weights to make room (PiSSA, OLoRA) are not among them: without its
adapters such a network is no longer the reference, nor what others load an export onto.
"""

from typing import Literal

import torch
from torch import Tensor

from rlfactory import keyed

Init = Literal["gaussian", "kaiming", "orthogonal"]


def first_values(init: Init, a: Tensor, b: Tensor, seed: int, index: int) -> tuple[Tensor, Tensor]:
    """A `[r, in, ...]` and B `[out, r, ...]` of layer `index`, as PEFT's starts of these names.

    PEFT draws from the global generator, this is keyed.
    """
    rank, width = a.shape[0], a[0].numel()
    match init:
        case "gaussian":
            return _normal(seed, index, rank, width).view_as(a) / rank, torch.zeros_like(b)
        case "kaiming":
            drawn = keyed.uniform(seed, "lora", [], [index], [rank, width])[0]
            return (2 * drawn - 1).view_as(a) / width**0.5, torch.zeros_like(b)
        case "orthogonal":
            return _orthogonal(a, b, seed, index)


def _orthogonal(a: Tensor, b: Tensor, seed: int, index: int) -> tuple[Tensor, Tensor]:
    """Neither is zero, yet B A is: their rows and columns lie in spaces that are orthogonal."""
    rank, width, out = a.shape[0], a[0].numel(), b.shape[0]
    drawn = _normal(seed, index, rank + width + out, rank)
    basis, _ = torch.linalg.qr(drawn[:rank])
    rows, columns = drawn[rank : rank + width], drawn[rank + width :]
    first = (rows[:, : rank // 2] @ basis[0::2]).T / 10
    second = columns[:, : rank // 2] @ basis[1::2] / 10
    return first.reshape(a.shape), second.reshape(b.shape)


def _normal(seed: int, index: int, *shape: int) -> Tensor:
    return keyed.normal(seed, "lora", [], [index], shape)[0]
