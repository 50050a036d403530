"""The floor of an iteration's time: its network calls, recorded and repeated without the rest.

A call is the outermost one of a module: an adapted transformer, a decoder, a classifier. All time
of an iteration beyond these calls is overhead of this package.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from probe import clocks
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from rlfactory.model.lm.attention import PreallocatedLayer

Clock = Callable[[], Any]
"""Reads seconds: a number, or one of each of several clocks."""
Weights = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Call:
    """A module's call: its arguments and context.

    `learns`: a backward pass followed; `weights`: the weight set that was in use.
    """

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    learns: bool
    inference: bool
    autocast: torch.dtype | None
    weights: str
    phase: str


@dataclass
class Recorder:
    """Records every outermost call of a module within `recording`, in any thread."""

    device: torch.device
    weights_in_use: Callable[[], str]
    phase: str = ""
    calls: list[Call] = field(default_factory=list)
    _thread: threading.local = field(default_factory=threading.local)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Patch `nn.Module.__call__` within the `with`."""
        enter = nn.Module.__call__

        def noted(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._thread, "inside", False):
                return enter(module, *args, **kwargs)
            self._thread.inside = True
            try:
                found = enter(module, *args, **kwargs)
            finally:
                self._thread.inside = False
            self._note(module, args, kwargs, found)
            return found

        nn.Module.__call__ = noted  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.__call__ = enter  # type: ignore[method-assign]

    def _note(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], found: Any
    ) -> None:
        kind = self.device.type
        half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        self.calls.append(
            Call(
                module,
                tree_map(_bare, args),
                tree_map(_bare, dict(kwargs)),
                learns=any(t.requires_grad for t in _tensors(found)),
                inference=torch.is_inference_mode_enabled(),
                autocast=half,
                weights=self.weights_in_use(),
                phase=self.phase,
            )
        )

    def take(self) -> list[Call]:
        """The calls recorded since the last time."""
        found, self.calls = self.calls, []
        return found


def _tensors(value: Any) -> list[Tensor]:
    """Every tensor of what a module returns."""
    outputs = [*value.values()] if isinstance(value, Mapping) else value
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


def _bare(value: Any) -> Any:
    """A tensor detached from its graph, that still requires a gradient if it did."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def clock_of(device: torch.device) -> Clock:
    """The CPU time of this process and the wall time, after synchronising the device."""

    def read() -> Any:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return np.array(clocks())

    return read


def floor(calls: Sequence[Call], clock: Clock, weights: Weights) -> dict[str, Any]:
    """Seconds of the repeated calls by phase; learning ones with a backward pass from ones."""
    spent: dict[str, Any] = dict.fromkeys([call.phase for call in calls], 0.0)
    for cache in {id(c): c for call in calls for c in _caches(call)}.values():
        _empty(cache)
    for call in calls:
        with weights(call.weights):
            spent[call.phase] = spent[call.phase] + _seconds(call, clock)
    for module in {id(call.module): call.module for call in calls}.values():
        module.zero_grad(set_to_none=True)
    return spent


def _seconds(call: Call, clock: Clock) -> Any:
    """Of one call, and of its backward pass."""
    with ExitStack() as under:
        under.enter_context(torch.inference_mode() if call.inference else nullcontext())
        under.enter_context(torch.set_grad_enabled(call.learns))
        begun = clock()
        with _autocast(call):
            found = call.module(*call.args, **call.kwargs)
        spent = clock() - begun
        outputs = [t for t in _tensors(found) if t.requires_grad] if call.learns else []
        ones = [torch.ones_like(t) for t in outputs]
        begun = clock()
        if outputs:
            torch.autograd.backward(outputs, ones)
        return spent + clock() - begun


def _autocast(call: Call) -> AbstractContextManager[object]:
    if call.autocast is None:
        return nullcontext()
    parameters = [*call.module.parameters()]
    device = parameters[0].device.type if parameters else "cpu"
    return torch.autocast(device, dtype=call.autocast)


def _caches(call: Call) -> list[Any]:
    """The KV caches among the arguments of a call."""
    leaves = tree_leaves([call.args, dict(call.kwargs)])
    return [
        leaf for leaf in leaves if any(isinstance(x, PreallocatedLayer) for x in layers_of(leaf))
    ]


def layers_of(value: Any) -> list[Any]:
    """The layers of a KV cache; of anything else, an empty list."""
    return list(getattr(value, "layers", None) or []) if hasattr(value, "get_seq_length") else []


def _empty(cache: Any) -> None:
    """Reset a KV cache to its state before the first call."""
    for layer in cache.layers:
        layer.is_initialized = False
