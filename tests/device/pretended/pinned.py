"""Which CPU storages count as pinned memory."""

import weakref
from typing import Any

from torch import Tensor

_storages: dict[int, weakref.ref[Any]] = {}


def pin(tensor: Tensor) -> Tensor:
    """Mark a CPU tensor's storage as pinned; returns the tensor."""
    storage = tensor.untyped_storage()
    key = storage._cdata
    _storages[key] = weakref.ref(storage, lambda _: _storages.pop(key, None))
    return tensor


def is_pinned(tensor: Tensor) -> bool:
    """Whether a CPU tensor lies in memory that was marked."""
    return tensor.untyped_storage()._cdata in _storages
