"""Classifier-free guidance, and the time input of flow networks."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from rlfactory.model.pipelines.embedding_cache import TextEmbeddings


def guided(
    network: Callable[[Tensor, Tensor, TextEmbeddings], Tensor],
    x: Tensor,
    t: Tensor,
    positive: TextEmbeddings,
    negative: TextEmbeddings | None,
    combine: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """A prediction with guidance, from one forward pass of `2 B` rows that both carry gradient.

    Args:
        network: predicts from `x` `[B, ...]`, `t` `[B]` and text embeddings of B rows.
        positive: the prompts' embeddings, `[B, ...]` each.
        negative: the negative prompt's embeddings, one row for all; None: no guidance, and half
            the cost. A tensor that it lacks, such as a picture, is that of the prompts.
        combine: the guided prediction, from that for `negative` and that for `positive`.
    """
    if negative is None:
        return network(x, t, positive)
    both = {
        name: torch.cat([negative.get(name, rows).expand_as(rows), rows])
        for name, rows in positive.items()
    }
    return combine(*network(torch.cat([x, x]), torch.cat([t, t]), both).chunk(2))


def classifier_free(negative: Tensor, positive: Tensor, guidance: float) -> Tensor:
    """`n + guidance (p - n)` (arXiv 2207.12598); a scale of 1 is the prediction `p`."""
    return negative + guidance * (positive - negative)


def network_times(t: Tensor, kind: Literal["exact", "truncated"]) -> Tensor:
    """`1000 t` `[B]`; "truncated" drops the fraction, as DanceGRPO and MixGRPO do."""
    times = 1000 * t
    return times if kind == "exact" else times.trunc()
