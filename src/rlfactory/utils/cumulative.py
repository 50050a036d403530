"""Cumulative sums that are also deterministic on CUDA."""

import torch
from torch import Tensor
from torch.nn import functional

TILE = 512
"""Numbers that one product of matrices adds up."""


def cumsum(values: Tensor) -> Tensor:
    """`values.cumsum(-1)` of floating-point values `[..., N]`.

    torch has no deterministic one on CUDA: in deterministic mode it raises. There the sums are
    products with a triangular matrix (`tiled_cumsum`), which cuBLAS computes in a fixed order.
    """
    if values.is_cuda and torch.are_deterministic_algorithms_enabled():
        return tiled_cumsum(values)
    return values.cumsum(-1)


def tiled_cumsum(values: Tensor, tile: int = TILE) -> Tensor:
    """The cumulative sums of `[..., N]`: those of each tile, and the sum of the tiles before it.

    In float64, which no setting lowers to TF32.
    """
    length = values.shape[-1]
    if length <= tile:
        return (values.double() @ _triangle(length, values)).to(values.dtype)
    padded = functional.pad(values.double(), (0, -length % tile))
    tiles = padded.view(*padded.shape[:-1], -1, tile)
    within = tiles @ _triangle(tile, values)
    totals = within[..., -1]
    before = tiled_cumsum(totals, tile) - totals
    return (within + before[..., None]).flatten(-2)[..., :length].to(values.dtype)


def _triangle(size: int, like: Tensor) -> Tensor:
    """Ones on and above the diagonal, `[size, size]`."""
    return torch.ones(size, size, dtype=torch.float64, device=like.device).triu()
