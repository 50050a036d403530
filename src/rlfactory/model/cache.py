"""A key-value cache with room for the whole response: each step writes its own token only."""

from typing import Any

from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's keys and values `[B, H, t, d]`: the first `t` places of `length`.

    transformers' own layer copies all of them at every step to make them longer by one.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Make the room, still empty."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self._rooms = tuple(
            states.new_empty(*states.shape[:2], self.length, states.shape[3])
            for states in (key_states, value_states)
        )
        self.keys, self.values = (room[:, :, :0] for room in self._rooms)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write `[B, H, n, d]` behind what there is; all of it so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        begin = self.keys.shape[2]
        end = begin + key_states.shape[2]
        for room, states in zip(self._rooms, (key_states, value_states), strict=True):
            room[:, :, begin:end] = states
        self.keys, self.values = (room[:, :, :end] for room in self._rooms)
        return self.keys, self.values


def roomy_cache(config: PretrainedConfig, length: int) -> DynamicCache:
    """Room for `length` tokens; layers that forget (sliding windows) stay as they are."""
    cache = DynamicCache(config=config)
    cache.layers = [
        RoomyLayer(length) if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache
