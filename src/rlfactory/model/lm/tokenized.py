"""Token ids of prompts and completions as tensors."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.utils.errors import ModelError

LongPrompts = Literal["refuse", "drop", "cut"]
IMPOSSIBLE = -1e9
"""The logit of an id that no token has. It is finite, so that its share of entropy and divergence
is exactly 0, and not NaN."""


def require_rows(tokenizer: Any, texts: Sequence[Sequence[int]], rows: int) -> None:
    """ModelError, which names the token, unless a model of `rows` rows has one for each."""
    if (most := max((max(ids, default=0) for ids in texts), default=0)) < rows:
        return
    token = tokenizer.convert_ids_to_tokens(most)
    raise ModelError(
        f"a text, or what the chat template adds to it, has {token!r}, token {most} of the"
        f" tokenizer, and the model's embedding has {rows} rows; add rows for it in transformers"
        " by resize_token_embeddings, or leave it out"
    )


def padded_prompts(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Token ids `[B, P]`, padded on the left, and the mask of the real ones, on the CPU."""
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(row)) + [*row] for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(width) >= width - lengths[:, None]


def padded_completions(
    rows: Sequence[Sequence[int]], limits: Sequence[int], pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Completions that end with an end token, each cut after its limit of tokens, on the CPU: token
    ids `[B, G]`, padded on the right; the mask of the real ones; and `[B]`, whether the end is
    among them.
    """
    kept = [[*row[:limit]] for row, limit in zip(rows, limits, strict=True)]
    width = max(map(len, kept))
    padded = torch.tensor([row + [pad] * (width - len(row)) for row in kept])
    lengths = torch.tensor([len(row) for row in kept])
    whole = torch.tensor([len(row) for row in rows]) == lengths
    return padded, torch.arange(width) < lengths[:, None], whole
