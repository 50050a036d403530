"""Attention masks and recomputed layers of transformers' language models."""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer
from transformers.modeling_layers import GradientCheckpointingLayer

from rlfactory.utils.errors import ModelError


def attention_mask(mask: Tensor, queries: int, *, by_layers: bool) -> Tensor:
    """Which tokens the last `queries` of them attend to: those before them that `mask` marks.

    Args:
        mask: true on real tokens, `[B, n]`.
        queries: q, how many of the n tokens are new.
        by_layers: see `masks_by_layers`. It reads the two-dimensional mask, which waits for the
            device.

    Returns:
        `[B, 1, q, n]`, which transformers uses as it is; `mask` itself where `by_layers`.
    """
    if by_layers:
        return mask
    if queries == 1:
        return mask[:, None, None]
    length = mask.shape[1]
    causal = torch.ones(queries, length, dtype=torch.bool, device=mask.device)
    return causal.tril(length - queries) & mask[:, None, None]


def masks_by_layers(config: PretrainedConfig) -> bool:
    """Whether transformers makes each layer's mask: some layer attends to a window of the last
    tokens only or has a recurrent state, or attention is not torch's, and masks are numbers to
    add, or lengths.
    """
    layers = DynamicCache(config=config).layers
    is_plain = all(type(layer) is DynamicLayer for layer in layers)
    return config._attn_implementation != "sdpa" or not is_plain


class RecomputedLayers:
    """Gradient checkpointing by transformers: the backward pass computes each layer again.

    Raises:
        ModelError: transformers does not know how for this architecture.
    """

    def __init__(self, network: Any) -> None:
        # without random numbers, whose state would be read from the device at each layer
        options = {"use_reentrant": False, "preserve_rng_state": False}
        try:
            if hasattr(network, "activation_checkpointing_enable"):
                network.activation_checkpointing_enable(activation_checkpointing_kwargs=options)
            else:  # its name in older versions of transformers
                network.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        except ValueError as error:
            raise ModelError(f"memory.gradient_checkpointing=true: {error}") from error
        self._layers = [m for m in network.modules() if isinstance(m, GradientCheckpointingLayer)]

    def prepare_pass(self) -> None:
        """Recompute in passes with a gradient only: others may use a cache.

        transformers recomputes layers in training mode. Only the layers' own flag is set: what
        they contain stays in evaluation mode.
        """
        for layer in self._layers:
            layer.training = torch.is_grad_enabled()
