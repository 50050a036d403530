"""The floor under an iteration: the calls of networks that it makes, recorded and made again bare.

A call is the outermost one of a module: an adapted transformer's, a decoder's, a classifier's. What
a network does inside is not ours; whatever else an iteration takes is.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from rlfactory.model.cache import RoomyLayer

Clock = Callable[[], float]
Weights = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Call:
    """A module's call: its arguments, and what it was made under. `learns`: it was followed by a
    backward pass; `weights` is the set that the policy's network had.
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
    """Keeps every outermost call of a module while it is `recording`, in any thread."""

    device: torch.device
    weights_in_use: Callable[[], str]
    phase: str = ""
    calls: list[Call] = field(default_factory=list)
    _thread: threading.local = field(default_factory=threading.local)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Torch's own entry into every module is ours within."""
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

    def taken(self) -> list[Call]:
        """What was recorded since the last time."""
        found, self.calls = self.calls, []
        return found


def _tensors(value: Any) -> list[Tensor]:
    """Every tensor of what a module returns."""
    outputs = [*value.values()] if isinstance(value, Mapping) else value
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


def _bare(value: Any) -> Any:
    """A tensor without the graph that it came from, but with a gradient where it has one."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def floor(calls: Sequence[Call], clock: Clock, weights: Weights) -> dict[str, float]:
    """Seconds of the bare calls, by phase; those that learn with a backward pass from ones."""
    spent = dict.fromkeys([call.phase for call in calls], 0.0)
    for cache in {id(c): c for call in calls for c in _caches(call)}.values():
        _empty(cache)
    for call in calls:
        with weights(call.weights):
            spent[call.phase] += _seconds(call, clock)
    for module in {id(call.module): call.module for call in calls}.values():
        module.zero_grad(set_to_none=True)
    return spent


def _seconds(call: Call, clock: Clock) -> float:
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
    """The key-value caches among its arguments."""
    leaves = tree_leaves([call.args, dict(call.kwargs)])
    return [leaf for leaf in leaves if any(isinstance(x, RoomyLayer) for x in layers_of(leaf))]


def layers_of(value: Any) -> list[Any]:
    """A cache's layers; none of anything else."""
    return list(getattr(value, "layers", None) or []) if hasattr(value, "get_seq_length") else []


def _empty(cache: Any) -> None:
    """As the first call found it."""
    for layer in cache.layers:
        layer.is_initialized = False
