"""Prompts and responses as one row each, for a pass without a cache."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlfactory.rollout import Tokens


@dataclass(frozen=True)
class Texts:
    """`ids` `[B, T]` of prompt and response, padded on the right, where it changes nothing.

    `read` `[B, T]` is true on the tokens of a response, `foretold` on the positions before them,
    `ends` on the last position of each prompt.
    """

    ids: Tensor
    read: Tensor
    foretold: Tensor
    ends: Tensor

    @property
    def next(self) -> Tensor:
        """The response tokens `[P]`, row after row: what comes after each foretold position."""
        return self.ids[self.read]


def texts_of(tokens: Tokens) -> Texts:
    """Rows without the padding between their parts, on the CPU."""
    prompts = tokens.prompt_mask.sum(1).tolist()
    rows = [
        torch.cat([prompt[real], response[kept]]).cpu()
        for prompt, real, response, kept in zip(
            tokens.prompt, tokens.prompt_mask, tokens.response, tokens.mask, strict=True
        )
    ]
    width = max(map(len, rows))
    at = torch.arange(width)
    read = torch.stack([(at >= p) & (at < len(row)) for p, row in zip(prompts, rows, strict=True)])
    foretold = torch.stack(
        [(at >= p - 1) & (at < len(row) - 1) for p, row in zip(prompts, rows, strict=True)]
    )
    return Texts(
        ids=torch.stack([pad(row, (0, width - len(row))) for row in rows]),
        read=read,
        foretold=foretold,
        ends=torch.stack([at == p - 1 for p in prompts]),
    )
