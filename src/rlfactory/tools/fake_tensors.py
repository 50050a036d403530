"""Fake tensors (torch's FakeTensorMode), whose operators derive shapes and compute nothing, and
what they would take: live bytes, FLOPs, bytes moved, kernels and seconds.

Weights are fake tensors of the CPU; what an engine computes from them is fake too, and all of its
bookkeeping stays real. Questions whose answer depends on data are answered as in a run without
accidents: what is asked for is finite, and small.
"""

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
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


@dataclass
class Work:
    """What a device has to do.

    Attributes:
        half, single: FLOPs of matrix products and attention in half precision and in float32.
        convolution: FLOPs of convolutions in float32, which a GPU computes in TF32.
        moved: bytes that all other operators read and write.
        launches: operators that start a kernel.
    """

    half: float = 0.0
    single: float = 0.0
    convolution: float = 0.0
    moved: float = 0.0
    launches: float = 0.0

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return self.half + self.single + self.convolution

    def __add__(self, other: "Work") -> "Work":
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, times: float) -> "Work":
        return Work(*(times * getattr(self, f.name) for f in fields(self)))

    def __sub__(self, other: "Work") -> "Work":
        return self + other * -1.0


@dataclass(frozen=True)
class Speeds:
    """How fast a device works.

    Attributes:
        name: of the device.
        half, single, convolution: FLOP/s that are reached, see `Work`.
        moved: bytes/s that are reached.
        launch: seconds of the host for each kernel.
        is_async: launches overlap with the work of the kernels, as on a GPU.
    """

    name: str
    half: float
    single: float
    convolution: float
    moved: float
    launch: float
    is_async: bool = True

    @classmethod
    def of(cls, gpu: GPUModel) -> "Speeds":
        """Those of a GPU, by its data sheet and the efficiencies above."""
        matmul = RUN_EFFICIENCY * MATMUL_EFFICIENCY
        moved = RUN_EFFICIENCY * BANDWIDTH_EFFICIENCY * gpu.bandwidth
        launch = LAUNCH_SECONDS / RUN_EFFICIENCY
        half, single, convolution = (matmul * x for x in (gpu.half, gpu.single, gpu.tf32))
        return cls(gpu.name, half, single, convolution, moved, launch)

    def seconds(self, work: Work) -> float:
        """Of some work, whose kernels run one after another."""
        kernels = work.half / self.half + work.single / self.single
        kernels += work.convolution / self.convolution + work.moved / self.moved
        launches = work.launches * self.launch
        return max(kernels, launches) if self.is_async else kernels + launches


class Counting(TorchDispatchMode):
    """Counts bytes of storages created within it, `now` and at their `peak`, and `work`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alive: dict[int, weakref.ref[Any]] = {}
        self.now = self.peak = 0
        self._work = Work()

    @property
    def work(self) -> Work:
        """All work so far."""
        return replace(self._work)

    def add(self, work: Work) -> None:
        """Count work that was counted before, and isn't repeated."""
        self._work += work

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = answered(func, args)
        if result is None:
            result = func(*args, **kwargs)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        storages = {_storage(tensor)._cdata for tensor in given}
        for storage in map(_storage, made):
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
        self._work.launches += 1
        if (flops := _flops(func, name, args, kwargs, given, result)) is None:
            self._work.moved += sum(t.numel() * t.element_size() for t in (*given, *made))
        elif given[0].element_size() == 2:
            self._work.half += flops
        elif name.startswith("convolution"):
            self._work.convolution += flops
        else:
            self._work.single += flops


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
    if name == "_local_scalar_dense":
        return True if tensor.dtype == torch.bool else SMALL if tensor.is_floating_point() else 0
    if name == "nonzero":
        places = [torch.arange(size) for size in tensor.shape]
        return torch.cartesian_prod(*places).reshape(-1, tensor.ndim)
    if name == "equal":
        return True
    return None


def _storage(tensor: Tensor) -> Any:
    return tensor.untyped_storage()


def bytes_of(module: nn.Module) -> int:
    """Bytes of a module's parameters and buffers."""
    tensors = [*module.parameters(), *module.buffers()]
    return sum({_storage(t)._cdata: _storage(t).nbytes() for t in tensors}.values())


def with_fake_tensors(module: nn.Module, mode: FakeTensorMode, device: str = "cpu") -> nn.Module:
    """The module with all its tensors replaced by fake ones, of a device."""

    def like(tensor: Tensor) -> Tensor:
        with mode:
            return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)

    for inner in module.modules():
        for name, parameter in inner._parameters.items():
            if parameter is not None:
                inner._parameters[name] = nn.Parameter(like(parameter), parameter.requires_grad)
        for name, buffer in inner._buffers.items():
            if buffer is not None:
                inner._buffers[name] = like(buffer)
    return module


def _as_on_cuda(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A norm that autocast computes in float32, as on CUDA; on a CPU autocast would not."""

    def exact(*args: Any, **options: Any) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            args = tuple(_exact(value) for value in args)
            options = {name: _exact(value) for name, value in options.items()}
        return norm(*args, **options)

    return exact


def _exact(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) else value


def _real(tensor: Tensor) -> Tensor:
    return torch.zeros(tuple(tensor.shape), dtype=tensor.dtype)


@contextmanager
def as_on_cuda() -> Iterator[None]:
    """Norms in autocast compute in float32, as on CUDA."""
    norms: dict[str, Any] = {
        n: _as_on_cuda(getattr(F, n)) for n in ("layer_norm", "group_norm", "rms_norm")
    }
    with mock.patch.multiple(F, **norms):
        yield


@contextmanager
def fake_tensors() -> Iterator[FakeTensorMode]:
    """Every tensor created within the `with` is a fake one."""
    with as_on_cuda(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        yield mode


@contextmanager
def fake_run() -> Iterator[tuple[FakeTensorMode, Counting]]:
    """What is computed in the `with` from fake tensors is counted, and their data can be read."""
    read: dict[str, Any] = {
        "tolist": lambda tensor: _real(tensor).tolist(),
        "numpy": lambda tensor, **_: _real(tensor).numpy(),
    }
    with as_on_cuda(), mock.patch.multiple(FakeTensor, create=True, **read), Counting() as counting:
        yield FakeTensorMode(allow_non_fake_inputs=True), counting


def measured_speeds() -> Speeds:
    """Those of this machine's CPU, in about a second."""
    x, small = torch.randn(768, 768), torch.randn(8)
    image, kernel = torch.randn(4, 32, 64, 64), torch.randn(32, 32, 3, 3)
    rate = 2 * 768.0**3 / _seconds(lambda: x @ x)
    convolved = (
        2 * image.numel() * 32 * 9.0 / _seconds(lambda: torch.conv2d(image, kernel, padding=1))
    )
    wide = torch.randn(2**20)
    moved = 12.0 * wide.numel() / _seconds(lambda: wide + wide)
    launch = _seconds(lambda: small * small)
    return Speeds("this CPU", rate, rate, convolved, moved, launch, is_async=False)


def _seconds(call: Callable[[], Any], budget: float = 0.2) -> float:
    """The least of as many calls as take about `budget` seconds."""
    call()
    found, end = list[float](), time.perf_counter() + budget
    while time.perf_counter() < end or len(found) < 3:
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return min(found)


def format_seconds(seconds: float) -> str:
    """Two digits, as many as a prediction is worth."""
    return f"{seconds:,.0f}" if seconds >= 9.5 else f"{seconds:.2g}"
