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
    rows: Sequence[Sequence[int]], length: int, pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Completions that end with an end token, cut after `length` tokens, on the CPU.

    Returns:
        Token ids `[B, length]`, padded on the right; the mask of the real ones; and `[B]`, whether
        the end is among them.
    """
    padded = torch.tensor([[*row[:length]] + [pad] * (length - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return padded, torch.arange(length) < lengths[:, None], lengths <= length
