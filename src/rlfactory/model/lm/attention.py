"""Passes of transformers' language models: masks, a preallocated KV cache, recomputed layers, and a
step of GPT-2 without the calls around its products, which take as long on a CPU.
"""

from collections.abc import Callable
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache, GPT2LMHeadModel, PretrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.pytorch_utils import Conv1D

from rlfactory.model.lm.shared_prompts import Shared, shared_prompts
from rlfactory.rollout import Tokens
from rlfactory.utils.errors import ModelError
from rlfactory.utils.pytree import to_device

Positions = Callable[[Tensor, Tensor], Tensor]
"""Positions `[B, L, ...]`, given prompts `[B, P]` and the mask `[B, L]` of these and what follows.
"""


def attention_mask(mask: Tensor, queries: int, *, by_layers: bool) -> Tensor:
    """Which tokens the last `queries` (q) of them attend to: those before them that `mask` `[B, n]`
    marks as real. `[B, 1, q, n]`, which transformers uses as it is; `mask` itself where masks are
    made `by_layers`, which waits for the device.
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


def hidden_states(
    network: Any,
    ids: Tensor | None,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
    cache: DynamicCache | None = None,
    *,
    embedded: Tensor | None = None,
) -> Tensor:
    """Final states `[B, L, d]` after each of the tokens `ids` `[B, L]`, or of what they are
    `embedded` to, `[B, L, d]`. `cache` has keys and values of the tokens before, and is extended.
    """
    given = {"input_ids": ids} if embedded is None else {"inputs_embeds": embedded}
    return network.base_model(
        **given,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=cache is not None,
    ).last_hidden_state


def response_states(
    network: Callable[..., Tensor],
    tokens: Tokens,
    config: PretrainedConfig,
    *,
    positions: Positions,
    by_layers: bool,
    shares_prompts: bool,
) -> Tensor:
    """The part `[B, G, ...]` before responses of what a network computes for each token, given ids,
    mask, positions and perhaps a cache. Equal prompts are read once, where it `shares_prompts` and
    that saves enough.
    """
    width, length = tokens.prompt.shape[1], tokens.mask.shape[1]
    if shares_prompts and len(tokens.mask) > 1:
        shared = shared_prompts(tokens.prompt_keys, width, length)
        if shared is not None:
            return _states_after_shared(
                network, tokens, shared, DynamicCache(config=config), by_layers, positions
            )
    # no token follows the last one, so it is not read
    ids = torch.cat([tokens.prompt, tokens.response[:, :-1]], dim=1)
    mask = torch.cat([tokens.prompt_mask, tokens.mask[:, :-1]], dim=1)
    padding = _left_padding(tokens, tokens.prompt, mask, by_layers, positions)
    return network(ids, *padding)[:, width - 1 :]


def _left_padding(
    tokens: Tokens, prompt: Tensor, mask: Tensor, by_layers: bool, positions: Positions
) -> tuple[Tensor | None, Tensor | None]:
    """The attention mask and positions of whole rows of which `mask` marks real tokens.

    Causal attention never sees the padding on the right. That on the left needs a mask, with which
    torch has no flash attention; without any, both are None.
    """
    if not tokens.prompts_are_padded:
        return None, None
    return attention_mask(mask, mask.shape[1], by_layers=by_layers), positions(prompt, mask)


def _states_after_shared(
    network: Callable[..., Tensor],
    tokens: Tokens,
    shared: Shared,
    cache: DynamicCache,
    by_layers: bool,
    positions: Positions,
) -> Tensor:
    """The same, by a pass over distinct prompts and one over responses, which continues it.

    The gradient of a prompt's keys and values is the sum over its responses.
    """
    first, number = (to_device(rows, tokens.prompt.device) for rows in shared)
    prompt, width = tokens.prompt[first], tokens.prompt.shape[1]
    padding = _left_padding(tokens, prompt, tokens.prompt_mask[first], by_layers, positions)
    before = network(prompt, *padding, cache)[:, -1:][number]
    if tokens.mask.shape[1] == 1:
        return before
    # by indexing, whose backward pass adds up in one order also on CUDA
    cache.batch_select_indices(number)
    mask = torch.cat([tokens.prompt_mask, tokens.mask[:, :-1]], dim=1)
    ids, behind = tokens.response[:, :-1], positions(tokens.prompt, mask)[:, width:]
    attention = attention_mask(mask, ids.shape[1], by_layers=by_layers)
    return torch.cat([before, network(ids, attention, behind, cache)], dim=1)


class RecomputedLayers:
    """Gradient checkpointing by transformers: the backward pass computes each layer again.
    ModelError where transformers does not know how for this architecture.
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


class PreallocatedLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values `[B, H, t, d]` of one layer: the first `t` positions of buffers of `length`.

    transformers' own layer concatenates, which copies the whole cache at every step.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the buffers, once the shapes are known."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self._buffers = tuple(
            states.new_empty(*states.shape[:2], self.length, states.shape[3])
            for states in (key_states, value_states)
        )
        self.keys, self.values = (buffer[:, :, :0] for buffer in self._buffers)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append `[B, H, n, d]`; returns all keys and values so far, as views of the buffers."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        begin = self.keys.shape[2]
        end = begin + key_states.shape[2]
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, begin:end] = states
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep the rows `beam_idx` `[b]`, in front of the same buffers if these have as many."""
        end, count = self.keys.shape[2], len(beam_idx)
        buffers = []
        for buffer in self._buffers:
            rows = buffer[beam_idx, :, :end]
            if count > len(buffer):
                buffer = buffer.new_empty(count, *buffer.shape[1:])
            buffer[:count, :, :end] = rows
            buffers.append(buffer[:count])
        self._buffers = tuple(buffers)
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)


def can_continue(config: PretrainedConfig) -> bool:
    """Whether a network's whole state is keys and values, through which gradients flow."""
    kinds = (DynamicLayer, DynamicSlidingWindowLayer)
    return all(type(layer) in kinds for layer in DynamicCache(config=config).layers)


def preallocated_cache(config: PretrainedConfig, length: int) -> DynamicCache:
    """A cache for `length` tokens; sliding-window layers, which drop old tokens, are kept."""
    cache = DynamicCache(config=config)
    cache.layers = [
        PreallocatedLayer(length) if type(layer) is DynamicLayer else layer
        for layer in cache.layers
    ]
    return cache


class GPT2Step:
    """The last hidden state of one new token of each row, as the own forward pass of a network that
    `fits` gives it; `cache` is filled with the tokens so far, and extended by each call.
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
        """Hidden states `[B, d]` of tokens `ids` at `positions`, both `[B, 1]`; `mask` `[B, n]`
        marks the real tokens so far (None: all).
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
