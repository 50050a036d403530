"""Tensors that say they are on "cuda:N" and compute on the CPU."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from . import pinned
from .ledger import DOWNLOAD, LEDGER, PINNED, PINNED_WAIT, READ, SIZE, UPLOAD
from .rules import UNSUPPORTED, DeviceMismatchError, require_same_device, waits_for_size

aten = torch.ops.aten


def own_device() -> torch.device:
    """The device of this process: that of its local rank, as set by torchrun."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


class PretendedTensor(Tensor):
    """A tensor of the pretended device; `host` holds its numbers."""

    host: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host: Tensor) -> "PretendedTensor":
        tensor: PretendedTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=own_device(),
        )
        tensor.host = host
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})

    def __repr__(self, **_: Any) -> str:
        return f"PretendedTensor({self.host})"

    @property
    def data(self) -> "PretendedTensor":
        return PretendedTensor(self.host)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, PretendedTensor):
            raise DeviceMismatchError("a tensor of cuda can't get the data of one of the cpu")
        torch._C.TensorBase.data.__set__(self, PretendedTensor(value.host))
        self.host = value.host

    def tolist(self) -> Any:
        LEDGER.record(READ, "tolist")
        return self.host.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(
            f"can't convert {own_device()} device type tensor to numpy; Tensor.cpu() copies it to"
            " host memory"
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def __getitem__(self, index: Any) -> Any:
        """A list is copied as a tensor of indices; torch does so below the reach of dispatch."""
        indices = index if isinstance(index, tuple) else (index,)
        return super().__getitem__(tuple(_tensor_of(entry) for entry in indices))

    def untyped_storage(self) -> Any:
        """The storage of the numbers: what files are written from."""
        return self.host.untyped_storage()

    def data_ptr(self) -> int:
        return self.host.data_ptr()

    def record_stream(self, stream: object) -> None:
        """Nothing: all streams are one."""

    def __deepcopy__(self, memo: object) -> "PretendedTensor":
        return PretendedTensor(self.host.clone()).requires_grad_(self.requires_grad)


def _tensor_of(index: Any) -> Any:
    return torch.tensor(index) if isinstance(index, list) else index


class PretendedDevice(TorchDispatchMode):
    """Within it, tensors can be made on "cuda" and copied there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})


def is_cuda(device: object) -> bool:
    """Whether a device, by any of its names, is the pretended one."""
    if device is None:
        return False
    return isinstance(device, int) or torch.device(device).type == "cuda"  # type: ignore[arg-type]


def host_of(value: Any) -> Any:
    """The numbers of a pretended tensor; any other value itself."""
    return value.host if isinstance(value, PretendedTensor) else value


def call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Do an operator on the CPU as CUDA would have done it, and record what the host waits for."""
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    ours = [x for x in tensors if isinstance(x, PretendedTensor)]
    if func is torch.ops.prim.device.default and ours:
        return own_device()
    if not ours and not is_cuda(kwargs.get("device")):
        return _on_cpu(func, args, kwargs)
    if func is aten._to_copy.default:
        return _copy_to(args[0], kwargs)
    if func is aten.copy_.default:
        return _copy_into(*args[:3], **kwargs)
    if func is aten._foreach_copy_.default:
        return _copy_all(*args[:3], **kwargs)
    if kwargs.get("device") is not None and not is_cuda(kwargs["device"]):
        # `empty_like` and others make a tensor of the CPU after the shape of ours
        return _on_cpu(func, *tree_map(host_of, (args, kwargs)))
    plain = [x for x in tensors if not isinstance(x, PretendedTensor)]
    if require_same_device(func, args, ours, plain):
        LEDGER.record(UPLOAD, "index of the cpu")
    _require_no_cpu_generator(func, kwargs)
    if func is aten._local_scalar_dense.default:
        LEDGER.record(READ, "item")
    if waits_for_size(func, args, kwargs):
        LEDGER.record(SIZE, func.overloadpacket.__name__)
    return _compute(func, args, kwargs, ours)


def _on_cpu(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An operator of CPU tensors alone; pinned memory is ordinary memory with a mark."""
    if func is aten.is_pinned.default:
        return pinned.is_pinned(args[0])
    if func is aten._pin_memory.default:
        return pinned.pin(args[0].clone())
    if kwargs.get("pin_memory"):
        return pinned.pin(func(*args, **{**kwargs, "pin_memory": False}))
    return func(*args, **kwargs)


def _compute(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], ours: Sequence[Tensor]
) -> Any:
    if func in UNSUPPORTED:
        raise NotImplementedError(f"the pretended device can't do {func}")
    if func is aten.is_pinned.default:
        return False
    if func is aten._fused_sdp_choice.default:
        return 0  # the math path: the others need kernels of the GPU
    options = {k: torch.device("cpu") if k == "device" else v for k, v in kwargs.items()}
    if options.get("pin_memory"):
        raise RuntimeError("only dense tensors of the cpu can be pinned")
    host_args, host_options = tree_map(host_of, (args, options))
    if func is aten._softmax.default and host_args[2]:  # half in, float32 out: only on a GPU
        host_args = (host_args[0].float(), host_args[1], False)
    result = func(*host_args, **host_options)
    # operators that work in place, or with out=, return what they were given
    given = {id(host_of(tensor)): tensor for tensor in ours}

    def back(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return given.get(id(value)) if id(value) in given else PretendedTensor(value)

    return tree_map(back, result)


def _copy_to(source: Tensor, kwargs: Mapping[str, Any]) -> Tensor:
    """`source.to(...)`: of another device or dtype."""
    options = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
    device = kwargs.get("device")
    stays = isinstance(source, PretendedTensor) and (device is None or is_cuda(device))
    copied = aten._to_copy.default(host_of(source), **options)
    if copied.untyped_storage()._cdata == host_of(source).untyped_storage()._cdata:
        copied = copied.clone()
    if stays:
        return PretendedTensor(copied)
    is_async = bool(kwargs.get("non_blocking"))
    if isinstance(source, PretendedTensor):
        # torch copies into pinned memory if it needn't wait; then nobody has waited yet
        LEDGER.record(PINNED if is_async else DOWNLOAD, "to")
        return pinned.pin(copied) if is_async else copied
    _record_copy(UPLOAD, "to", pinned.is_pinned(source), is_async)
    return PretendedTensor(copied)


def _copy_into(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """`target.copy_(source)`."""
    if isinstance(target, PretendedTensor) != isinstance(source, PretendedTensor):
        is_upload = isinstance(target, PretendedTensor)
        memory = source if is_upload else target
        kind = UPLOAD if is_upload else DOWNLOAD
        _record_copy(kind, "copy_", pinned.is_pinned(memory), non_blocking)
    aten.copy_.default(host_of(target), host_of(source))
    return target


def _copy_all(
    targets: Sequence[Tensor], sources: Sequence[Tensor], non_blocking: bool = False
) -> None:
    """`torch._foreach_copy_`: between devices it is a copy for each tensor."""
    for target, source in zip(targets, sources, strict=True):
        _copy_into(target, source, non_blocking)


def _record_copy(kind: str, what: str, is_pinned: bool, is_async: bool) -> None:
    if is_pinned:
        kind = PINNED if is_async else PINNED_WAIT
    LEDGER.record(kind, what)


def _require_no_cpu_generator(func: Any, kwargs: Mapping[str, Any]) -> None:
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type == "cpu":
        raise DeviceMismatchError(
            f"Expected a 'cuda' device type for generator but found 'cpu': {func}"
        )
