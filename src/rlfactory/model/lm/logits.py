"""Logits from final hidden states, as the architectures of transformers compute them."""

from typing import Any

import torch
from torch import Tensor

from rlfactory.utils.errors import ModelError

TOLERANCE = 0.02
"""Share of the largest logit by which two computations may differ: half precision rounds."""


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
