"""Token ids of prompts and of given completions as padded tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor


def padded_prompts(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Token ids `[B, P]`, padded on the left, and the mask of the real ones, on the CPU."""
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(row)) + [*row] for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(width) >= width - lengths[:, None]


def padded_completions(
    rows: Sequence[Sequence[int]], limits: Sequence[int], pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Completions that end with an end token, each cut after its limit of tokens, on the CPU.

    Returns:
        Token ids `[B, G]`, padded on the right; the mask of the real ones; and `[B]`, whether the
        end is among them.
    """
    kept = [[*row[:limit]] for row, limit in zip(rows, limits, strict=True)]
    width = max(map(len, kept))
    padded = torch.tensor([row + [pad] * (width - len(row)) for row in kept])
    lengths = torch.tensor([len(row) for row in kept])
    whole = torch.tensor([len(row) for row in rows]) == lengths
    return padded, torch.arange(width) < lengths[:, None], whole
