"""Equal prompts of a batch, which are read once: a group's responses continue one KV cache."""

from typing import Any

import torch
from torch import Tensor

from rlfactory.rollout import Tokens

WORTH = 0.75
"""The share of a batch's tokens that are left to be read, from which on prompts are shared: two
passes instead of one, and masks, cost something too.
"""
Shared = tuple[Tensor, Tensor]
"""The first row of each distinct prompt, `[U]`, and each row's number among these, `[B]`."""


def first_rows(keys: Tensor) -> Tensor:
    """The first row that has the same key, for each of `keys` `[B]`, on the CPU, `[B]`."""
    rows: dict[int, int] = {}
    firsts = [rows.setdefault(key, row) for row, key in enumerate(keys.tolist())]
    return torch.tensor(firsts, dtype=torch.int64)


def shared_prompts(keys: Tensor, prompt: int, response: int) -> Shared | None:
    """The distinct prompts of a batch, whose `keys` `[B]` on the CPU are equal
    (`Tokens.prompt_keys`), given its tokens of a prompt and of a response; None where to read them
    once saves too little.
    """
    first, number = torch.unique(first_rows(keys), return_inverse=True)
    tokens = len(first) * prompt + len(keys) * response
    return (first, number) if tokens <= WORTH * len(keys) * (prompt + response) else None


def prompts_together(rows: Tensor, tokens: Tokens, size: int) -> Tensor:
    """Row numbers in their order; or, if passes of `size` responses then read less, by prompts."""

    def tokens_read(rows: Any) -> int:
        prompt = int(prompts[rows].amax())
        response = int(responses[rows].amax())
        shared = shared_prompts(keys[rows], prompt, response)
        return len(rows if shared is None else shared[0]) * prompt + len(rows) * response

    keys, responses = tokens.prompt_keys, tokens.response_lengths
    prompts = tokens.total_lengths - responses
    together = rows[first_rows(keys[rows]).argsort(stable=True)]
    if torch.equal(rows, together):
        return rows
    return min(rows, together, key=lambda order: sum(map(tokens_read, torch.split(order, size))))
