"""A preallocated KV cache: each decoding step writes its own token only."""

from typing import Any

from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer


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

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the rows `indices` `[b]`, at the front of the same buffers if these have as many."""
        end, count = self.keys.shape[2], len(indices)
        buffers = []
        for buffer in self._buffers:
            rows = buffer[indices, :, :end]
            if count > len(buffer):
                buffer = buffer.new_empty(count, *buffer.shape[1:])
            buffer[:count, :, :end] = rows
            buffers.append(buffer[:count])
        self._buffers = tuple(buffers)
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)


def keep_rows(cache: DynamicCache, rows: Tensor) -> None:
    """Reduce or extend a cache to some of its rows `[b]`, recurrent states included."""
    for layer in cache.layers:
        # transformers selects rows of keys and values alone, and reorders those of all states
        is_recurrent = hasattr(layer, "recurrent_states")
        (layer.reorder_cache if is_recurrent else layer.batch_select_indices)(rows)


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
