"""Networks of any size that compute shapes alone, and the memory that they would take.

Every tensor is a fake one of the CPU (torch's FakeTensorMode): operators say what they would
return, and nothing is computed or allocated. `Live` counts the bytes of the storages that are
alive, which is what CUDA's allocator would hold without its rounding: after a forward pass what
autograd has saved, and at its highest the peak.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Live(TorchDispatchMode):
    """The bytes `now` in storages that were made since it began, and the `peak` of that."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, weakref.ref[Any]] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {storage_of(t)._cdata for t in tree_leaves((args, kwargs)) if _is_tensor(t)}
        for tensor in filter(_is_tensor, tree_leaves(result)):
            storage = storage_of(tensor)
            if storage._cdata not in given and storage._cdata not in self._alive:
                self._count(storage)
        return result

    def _count(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()

        def gone(_: object) -> None:
            self._alive.pop(key, None)
            self.now -= size

        self._alive[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, Tensor)


def storage_of(tensor: Tensor) -> Any:
    return tensor.untyped_storage()


def as_on_cuda(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A norm in float32 under autocast, as on CUDA; a CPU's autocast leaves it as it is."""

    def exact(*args: Any, **options: Any) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            args = tuple(_exact(value) for value in args)
            options = {name: _exact(value) for name, value in options.items()}
        return norm(*args, **options)

    return exact


def _exact(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) else value


def hollow(module: nn.Module) -> nn.Module:
    """The module with a fake tensor of the CPU in the place of each of its tensors."""
    for inner in module.modules():
        for name, parameter in inner._parameters.items():
            if parameter is not None:
                inner._parameters[name] = nn.Parameter(_like(parameter), parameter.requires_grad)
        for name, buffer in inner._buffers.items():
            if buffer is not None:
                inner._buffers[name] = _like(buffer)
    return module


def _like(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


@contextmanager
def ghosts() -> Iterator[None]:
    """Every tensor that is made here is a fake one."""
    norms = {name: as_on_cuda(getattr(F, name)) for name in ("layer_norm", "group_norm")}
    with FakeTensorMode(allow_non_fake_inputs=True), mock.patch.multiple(F, **norms):
        yield


@dataclass(frozen=True)
class Measured:
    """Bytes: what a forward pass `saved`, and the peaks without and with a gradient."""

    saved: int
    sampling: int
    learning: int


def measured(predict: Callable[[], Tensor]) -> Measured:
    """What a prediction and the gradient of its mean square take, beside the weights."""
    with Live() as live:
        with torch.no_grad():
            predict()
        sampling, live.peak = live.peak, live.now
        before = live.now
        loss = predict().float().pow(2).mean()
        saved = live.now - before
        loss.backward()
    return Measured(saved, sampling, live.peak - before)
