"""Makes torch believe that it has GPUs, all of which are the pretended one."""

import contextlib
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo  # before torch.tensor is replaced: it remembers the constructors
import torch.cuda.amp.common
import torch.utils._device
from torch import Tensor
from torch.optim.optimizer import _foreach_supported_types as _optimizer_foreach_types
from torch.utils._foreach_utils import _foreach_supported_types as _utils_foreach_types

from . import pinned
from .collectives import unwrap_collectives
from .ledger import LEDGER, SYNCHRONIZE, UPLOAD
from .tensor import PretendedDevice, PretendedTensor, is_cuda, own_device

MEMORY = 80 * 2**30


class PretendedStream:
    """A stream; work on it is done at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = own_device()

    def synchronize(self) -> None:
        LEDGER.record(SYNCHRONIZE, "stream")

    def wait_stream(self, other: object) -> None: ...

    def wait_event(self, event: object) -> None: ...

    def record_event(self, event: "PretendedEvent | None" = None) -> "PretendedEvent":
        return event or PretendedEvent()

    def query(self) -> bool:
        return True

    def __enter__(self) -> "PretendedStream":
        return self

    def __exit__(self, *_: object) -> None: ...


class PretendedEvent:
    """An event, which has come by the time that it is asked for."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, stream: object = None) -> None: ...

    def wait(self, stream: object = None) -> None: ...

    def synchronize(self) -> None:
        LEDGER.record(SYNCHRONIZE, "event")

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: object) -> float:
        return 0.0


@contextlib.contextmanager
def _on_stream(stream: object) -> Iterator[None]:
    yield


def _device_count() -> int:
    return int(os.environ.get("PRETENDED_DEVICES", "1"))


def _properties(*_: Any) -> Any:
    return SimpleNamespace(
        name="Pretended", total_memory=MEMORY, major=9, minor=0, multi_processor_count=132
    )


ANSWERS: dict[str, Any] = {
    "_lazy_init": lambda: None,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "device_count": _device_count,
    "current_device": lambda: own_device().index,
    "set_device": lambda device: None,
    "synchronize": lambda *_: LEDGER.record(SYNCHRONIZE, "device"),
    "empty_cache": lambda: None,
    "manual_seed": lambda seed: None,
    "manual_seed_all": lambda seed: None,
    "get_device_name": lambda *_: "Pretended",
    "get_device_capability": lambda *_: (9, 0),
    "get_device_properties": _properties,
    "is_bf16_supported": lambda *_, **__: True,
    "mem_get_info": lambda *_: (MEMORY, MEMORY),
    "memory_allocated": lambda *_: 0,
    "memory_reserved": lambda *_: 0,
    "max_memory_allocated": lambda *_: 0,
    "max_memory_reserved": lambda *_: 0,
    "memory_stats": lambda *_: {},
    "reset_peak_memory_stats": lambda *_: None,
    "Stream": PretendedStream,
    "Event": PretendedEvent,
    "stream": _on_stream,
    "current_stream": PretendedStream,
    "default_stream": PretendedStream,
}
"""What `torch.cuda` says. Streams and events are there to record who waits for them."""


def install() -> None:
    """Replace what asks for a GPU, and have all later threads use the pretended one."""
    for name, answer in ANSWERS.items():
        setattr(torch.cuda, name, answer)
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.inference_mode = _without_gradient  # type: ignore[misc, assignment]
    _allow_moves_between_devices()
    _replace_constructors()
    _enter_in_threads()
    _use_foreach()
    unwrap_collectives()


def _without_gradient(mode: Any = True) -> Any:
    """In place of inference mode, since a subclass of Tensor can't be an inference tensor."""
    if callable(mode):
        return torch.no_grad()(mode)
    return torch.no_grad() if mode else contextlib.nullcontext()


def _allow_moves_between_devices() -> None:
    """`module.to("cuda")` makes new parameters, as no disguise can be put on an old one."""
    compatible = torch._has_compatible_shallow_copy_type

    def same_kind(first: Tensor, second: Tensor) -> bool:
        ours = isinstance(first, PretendedTensor), isinstance(second, PretendedTensor)
        return ours[0] == ours[1] and compatible(first, second)

    torch._has_compatible_shallow_copy_type = same_kind
    _keep_ties()


def _keep_ties() -> None:
    """Parameters that modules share are one parameter after a move too, as on CUDA, where torch
    replaces a parameter's data and not the parameter.
    """
    apply = torch.nn.Module._apply

    def kept(module: torch.nn.Module, *args: Any, **options: Any) -> torch.nn.Module:
        places: dict[int, list[tuple[torch.nn.Module, str]]] = {}
        for owner in module.modules():
            for name, parameter in owner._parameters.items():
                if parameter is not None:
                    places.setdefault(id(parameter), []).append((owner, name))
        shared = [found for found in places.values() if len(found) > 1]
        apply(module, *args, **options)
        for (owner, name), *others in shared:
            for other, other_name in others:
                other._parameters[other_name] = owner._parameters[name]
        return module

    torch.nn.Module._apply = kept  # type: ignore[method-assign, assignment]


def _replace_constructors() -> None:
    """`torch.tensor(..., device="cuda")` copies from pageable memory."""
    torch.utils._device._device_constructors()  # remembers the originals, for the modes of torch

    def replaced(original: Any, name: str) -> Any:
        def construct(data: Any, *args: Any, **options: Any) -> Tensor:
            device, pins = options.pop("device", None), options.pop("pin_memory", False)
            if isinstance(data, Tensor) and original is torch.as_tensor:
                return original(data, *args, device=device, **options)
            if not is_cuda(device):
                tensor = original(data, *args, device=device, **options)
                return pinned.pin(tensor) if pins else tensor
            LEDGER.record(UPLOAD, name)
            requires_grad = options.pop("requires_grad", False)
            host = original(data, *args, **options).detach()
            return PretendedTensor(host).requires_grad_(requires_grad)

        return construct

    for name in ("tensor", "as_tensor"):
        setattr(torch, name, replaced(getattr(torch, name), f"torch.{name}"))


def _enter_in_threads() -> None:
    """Dispatch modes are each thread's own."""
    run = threading.Thread.run

    def with_device(thread: threading.Thread) -> None:
        with PretendedDevice():
            run(thread)

    threading.Thread.run = with_device  # type: ignore[method-assign]


def _use_foreach() -> None:
    """Optimizers and norms take all tensors at once, as on CUDA; they look at a tensor's class."""
    _utils_foreach_types.append(PretendedTensor)  # type: ignore[arg-type]
    _optimizer_foreach_types.append(PretendedTensor)
