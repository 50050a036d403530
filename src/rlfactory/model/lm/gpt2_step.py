"""A decoding step of GPT-2 without the calls around its products, which take as long on a CPU."""

from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache, GPT2LMHeadModel, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rlfactory.model.lm.attention import PreallocatedLayer


class GPT2Step:
    """The last hidden state of one new token of each row, as the network's own forward gives it.

    Args:
        network: a network that `fits`.
        cache: filled with the tokens so far, and extended by each call.
    """

    def __init__(self, network: PreTrainedModel, cache: DynamicCache) -> None:
        self.network, self.cache = network.base_model, cache
        self.heads = network.config.num_attention_heads

    @staticmethod
    def fits(network: PreTrainedModel, cache: DynamicCache) -> bool:
        """Whether a network is a plain GPT-2: no adapters, hooks, autocast or unusual attention."""
        config = network.config
        return (
            type(network) is GPT2LMHeadModel
            and config._attn_implementation == "sdpa"
            and config.scale_attn_weights
            and not config.scale_attn_by_inverse_layer_idx
            and not config.add_cross_attention
            and all(type(layer) is PreallocatedLayer for layer in cache.layers)
            and not torch.is_autocast_enabled(network.device.type)
            and not any(_is_changed(module) for module in network.modules())
        )

    def __call__(self, ids: Tensor, mask: Tensor | None, positions: Tensor) -> Tensor:
        """Hidden states `[B, d]`.

        Args:
            ids: token ids, `[B, 1]`.
            mask: which tokens so far are real, `[B, n]`; None: all.
            positions: `[B, 1]`.
        """
        network = self.network
        states = network.wte(ids[:, 0]) + network.wpe(positions[:, 0])
        attention = None if mask is None else mask[:, None, None]
        for block, layer in zip(network.h, self.cache.layers, strict=True):
            states = states + self._attended(block, layer, _norm(block.ln_1, states), attention)
            wide = block.mlp.act(_product(block.mlp.c_fc, _norm(block.ln_2, states)))
            states = states + _product(block.mlp.c_proj, wide)
        return _norm(network.ln_f, states)

    def _attended(
        self, block: Any, layer: PreallocatedLayer, states: Tensor, mask: Tensor | None
    ) -> Tensor:
        count = len(states)
        query, key, value = (
            _product(block.attn.c_attn, states).view(count, 3, self.heads, 1, -1).unbind(1)
        )
        keys, values = layer.update(key, value)
        attended = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        return _product(block.attn.c_proj, attended.view(count, -1))


def _norm(module: nn.LayerNorm, states: Tensor) -> Tensor:
    return functional.layer_norm(
        states, module.normalized_shape, module.weight, module.bias, module.eps
    )


def _product(module: Conv1D, states: Tensor) -> Tensor:
    return torch.addmm(module.bias, states, module.weight)


def _is_changed(module: nn.Module) -> bool:
    """Whether a module does more than its class says, as under hooks, or is an adapter."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or "forward" in vars(module)
        or isinstance(module, BaseTunerLayer)
    )
