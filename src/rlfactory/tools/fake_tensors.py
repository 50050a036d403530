"""Fake tensors (torch's FakeTensorMode), whose operators derive shapes and compute nothing, and
what they would take: live bytes, FLOPs, bytes moved, kernels and a GPU's seconds.

Weights are fake tensors of the CPU; what an engine computes from them is fake too, and all of its
bookkeeping stays real. Questions whose answer depends on data are answered as in a run without
accidents: what is asked for is finite, and small.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from rlfactory.config.memory.devices import GPUModel

WITHOUT_KERNEL = (
    *("empty", "detach", "lift_fresh", "_unsafe_view", "alias", "expand", "is_same_size"),
    *("_local_scalar_dense", "sym_size", "device"),
)
"""Beginnings of the names of operators that only describe memory."""
SMALL = 1e-9
"""The number that fake tensors hold where one is read."""
MATMUL_EFFICIENCY = 0.62
"""The part of a GPU's peak that large matrix products and attention reach in practice."""
BANDWIDTH_EFFICIENCY = 0.75
"""The same of the bandwidth of its memory, for operators that only read and write."""
RUN_EFFICIENCY = 0.7
"""The part of an iteration in which a GPU works at these speeds: the only number that was fitted to
published runs (docs/estimate.md). The rest are waits, work of the host, and uneven ranks."""
LAUNCH_SECONDS = 7e-6
"""Host time of PyTorch for one eager kernel; a GPU that is faster than this waits for the host."""


Work = NDArray[np.float64]
"""What a device has to do, in the order of:"""
HALF, SINGLE, CONVOLUTION, MOVED, LAUNCHES = range(5)
"""FLOPs of matrix products and attention in half precision and in float32, and of convolutions in
float32, which a GPU computes in TF32; bytes that all other operators read and write; operators that
start a kernel."""


def no_work() -> Work:
    """Nothing to do."""
    return np.zeros(5)


def flops_of(work: Work) -> float:
    """All FLOPs."""
    return float(work[:MOVED].sum())


def seconds_on(gpu: GPUModel, work: Work) -> float:
    """The seconds of some work, whose kernels run one after another while the host launches others,
    by the GPU's data sheet and the efficiencies above.
    """
    peaks = 1e12 * MATMUL_EFFICIENCY * np.array([gpu.bf16, gpu.fp32, gpu.tf32])
    moved = work[MOVED] / (1e9 * BANDWIDTH_EFFICIENCY * gpu.bandwidth)
    kernels = (work[:MOVED] / peaks).sum() + moved
    return float(max(kernels, work[LAUNCHES] * LAUNCH_SECONDS) / RUN_EFFICIENCY)


class Counting(TorchDispatchMode):
    """Counts bytes of storages created within it, `now` and at their `peak`, and `work`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alive: dict[int, weakref.ref[Any]] = {}
        self.now = self.peak = 0
        self.work = no_work()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = answered(func, args)
        if result is None:
            result = func(*args, **kwargs)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        storages = {tensor.untyped_storage()._cdata for tensor in given}
        for storage in (tensor.untyped_storage() for tensor in made):
            if storage._cdata not in storages and storage._cdata not in self._alive:
                self._count_storage(storage)
        if made:
            self._count_work(func, args, kwargs, given, made, result)
        return result

    def _count_storage(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()

        def freed(_: object) -> None:
            self._alive.pop(key, None)
            self.now -= size

        self._alive[key] = weakref.ref(storage, freed)
        self.now += size
        self.peak = max(self.peak, self.now)

    def _count_work(
        self,
        func: Any,
        args: Any,
        kwargs: Any,
        given: list[Tensor],
        made: list[Tensor],
        result: Any,
    ) -> None:
        name = func._schema.name.removeprefix("aten::")
        if func.is_view or name.startswith(WITHOUT_KERNEL):
            return
        self.work[LAUNCHES] += 1
        if (flops := _flops(func, name, args, kwargs, given, result)) is None:
            self.work[MOVED] += sum(t.numel() * t.element_size() for t in (*given, *made))
            return
        single = CONVOLUTION if name.startswith("convolution") else SINGLE
        self.work[HALF if given[0].element_size() == 2 else single] += flops


def _flops(
    func: Any, name: str, args: Any, kwargs: Any, given: list[Tensor], result: Any
) -> float | None:
    """FLOPs of a matrix product, convolution or attention; None of other operators."""
    attention: Any = sdpa_flop_count
    backward: Any = sdpa_backward_flop_count
    if name == "_scaled_dot_product_flash_attention_for_cpu":
        return float(attention(*(t.shape for t in given[:3])))
    if name == "_scaled_dot_product_flash_attention_for_cpu_backward":
        return float(backward(*(t.shape for t in given[:4])))
    if name == "convolution_backward":
        # torch's formula takes a grouped convolution's weight gradient for that of a full one
        outputs = args[0].shape[0] * args[0].shape[2:].numel()
        return float(2 * outputs * args[2].numel() * sum(args[-1][:2]))
    formula = flop_registry.get(func._overloadpacket)
    return None if formula is None else float(formula(*args, **kwargs, out_val=result))


def answered(func: Any, args: Any) -> Any:
    """The result of an operator that depends on the data of a fake tensor; None of any other."""
    if not args or not isinstance(args[0], FakeTensor):
        return None
    name, tensor = func._overloadpacket.__name__, args[0]
    if name == "_local_scalar_dense" and tensor.dtype != torch.bool:
        return SMALL if tensor.is_floating_point() else 0
    if name == "nonzero":
        places = [torch.arange(size) for size in tensor.shape]
        return torch.cartesian_prod(*places).reshape(-1, tensor.ndim)
    return True if name in ("equal", "_local_scalar_dense") else None


def bytes_of(value: Any) -> int:
    """Bytes of the tensors in a nest, of a module of its parameters and buffers."""
    if isinstance(value, Tensor):
        return value.untyped_storage().nbytes()
    if isinstance(value, nn.Module):
        tensors = [*value.parameters(), *value.buffers()]
        return sum({t.untyped_storage()._cdata: bytes_of(t) for t in tensors}.values())
    if isinstance(value, Mapping):
        return sum(map(bytes_of, value.values()))
    return bytes_of(vars(value)) if is_dataclass(value) else 0


def with_fake_tensors(module: nn.Module, mode: FakeTensorMode, device: str = "cpu") -> nn.Module:
    """The module with all its tensors replaced by fake ones, of a device."""

    def like(tensor: Tensor) -> Tensor:
        with mode:
            return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)

    return module._apply(like)  # type: ignore[no-untyped-call]


def _real(tensor: Tensor) -> Tensor:
    return torch.zeros(tuple(tensor.shape), dtype=tensor.dtype)


@contextmanager
def as_on_cuda() -> Iterator[None]:
    """Norms in autocast compute in float32, as on CUDA; on a CPU they would not."""

    def exact(norm: Callable[..., Tensor], *args: Any, **options: Any) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            args, options = tree_map_only(Tensor, Tensor.float, (args, options))
        return norm(*args, **options)

    norms = ("layer_norm", "group_norm", "rms_norm")
    replaced: dict[str, Any] = {name: partial(exact, getattr(F, name)) for name in norms}
    with mock.patch.multiple(F, **replaced):
        yield


@contextmanager
def fake_tensors() -> Iterator[FakeTensorMode]:
    """Every tensor created within the `with` is a fake one."""
    with as_on_cuda(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        yield mode


@contextmanager
def fake_run() -> Iterator[tuple[FakeTensorMode, Counting]]:
    """A `with` that counts what is computed from fake tensors, and lets their data be read."""
    read: dict[str, Any] = {
        "tolist": lambda tensor: _real(tensor).tolist(),
        "numpy": lambda tensor, **_: _real(tensor).numpy(),
    }
    with as_on_cuda(), mock.patch.multiple(FakeTensor, create=True, **read), Counting() as counting:
        yield FakeTensorMode(allow_non_fake_inputs=True), counting
