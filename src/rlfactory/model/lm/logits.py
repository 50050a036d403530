"""Logits from final hidden states, as transformers' architectures do, in chunks of tokens."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlfactory.utils.errors import ModelError

TOLERANCE = 0.02
"""Share of the largest logit by which two computations may differ: half precision rounds."""
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


@torch.no_grad()
def require_known_logits(network: Any, path: str) -> None:
    """Check once that logits from hidden states are those of the network's own forward pass.

    Raises:
        ModelError: its architecture computes them in a way that is not known here.
    """
    projection = network.get_output_embeddings()
    if projection is None or network.device.type == "meta":
        return
    config = network.config.get_text_config()
    ids = torch.arange(min(4, config.vocab_size), device=network.device)[None]
    hidden = network.base_model(input_ids=ids, use_cache=False).last_hidden_state
    found = finished(config, projection(hidden)).float()
    own = network(input_ids=ids, use_cache=False).logits.float()
    if not (found - own).abs().max() <= TOLERANCE * own.abs().max().clamp(min=1e-6):
        kind = type(network).__name__
        raise ModelError(
            f"model.path={path}: {kind} computes its logits otherwise than by an output projection"
            " of its last hidden states, a scale and a cap, and is not supported"
        )


def in_chunks(work: Work, size: int, *columns: Tensor) -> tuple[Tensor, ...]:
    """`work(*columns)`, at most `size` rows at a time; the backward pass computes a chunk again.

    So the logits of one chunk at most are held, as in Liger's and verl's fused losses. Results
    differ from those of one call by the rounding of gradient sums alone.

    Args:
        work: computes rows from rows: tensors `[m, ...]` from the chunk of each column, and draws
            no random numbers.
        size: the most rows of a chunk. With all rows in one chunk nothing is computed again.
        columns: tensors of equally many rows.
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
