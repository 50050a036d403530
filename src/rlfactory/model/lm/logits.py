"""Logits from final hidden states, as transformers' architectures do, in chunks of tokens."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Work = Callable[..., tuple[Tensor, ...]]


def finished(config: Any, logits: Tensor) -> Tensor:
    """The output projection's logits, scaled and capped as the architecture does.

    Gemma-2 caps them by a tanh, Cohere and Granite scale them, Falcon-H1 scales the projection.
    """
    for name in ("logit_scale", "lm_head_multiplier"):
        if (factor := getattr(config, name, None)) is not None:
            logits = logits * factor
    if (divisor := getattr(config, "logits_scaling", None)) is not None:
        logits = logits / divisor
    if (cap := getattr(config, "final_logit_softcapping", None)) is not None:
        logits = cap * torch.tanh(logits / cap)
    return logits


def in_chunks(work: Work, size: int, *columns: Tensor) -> tuple[Tensor, ...]:
    """`work(*columns)`, at most `size` rows at a time; the backward pass computes a chunk again,
    unless there is one alone.

    So the logits of one chunk at most are held, as in Liger's and verl's fused losses. Results
    differ from those of one call by the rounding of gradient sums alone. `work` computes rows
    `[m, ...]` from the same rows of each column, and draws no random numbers.
    """
    count = len(columns[0])
    if count <= size:
        return work(*columns)
    parts: list[Any] = [
        # saving the state of random numbers would wait for the device
        checkpoint(work, *chunk, use_reentrant=False, preserve_rng_state=False)
        for chunk in zip(*(torch.split(column, size) for column in columns), strict=True)
    ]
    return tuple(torch.cat(pieces) for pieces in zip(*parts, strict=True))
