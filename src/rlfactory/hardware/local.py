"""One process on a CPU or one GPU."""

import logging
import math
import os
import resource
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.backends import cuda, cudnn
from torch.utils import deterministic

from rlfactory.hardware.base import Hardware, HardwareError
from rlfactory.hardware.gradient_tree import add_by_block
from rlfactory.hardware.portable import conflicts, unset
from rlfactory.hardware.process_environment import use_expandable_segments
from rlfactory.utils.types import Faults, GPUName, Positive, PositiveInt

log = logging.getLogger(__name__)

OVERFLOWS = 25
"""Consecutive updates that may overflow. By then the scale is 2^-9: the scale is not the cause."""
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""Values of that variable with which cuBLAS is deterministic; the first is faster."""


class Local(Hardware):
    """A CPU or one GPU; `device=auto` takes the GPU if there is one.

    `loss_scaling` multiplies losses by a power of 2, so that gradients do not underflow in float16,
    and divides the gradients by it before they are clipped (torch's GradScaler). `deterministic`
    computes the same bits in each run on a GPU, until `close`.
    """

    rank = 0
    world_size = 1

    def __init__(
        self,
        loss_scaling: bool = False,
        *,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        threads: PositiveInt | None = None,
        gpu: GPUName = "auto",
        memory_gb: Positive | None = None,
        deterministic: bool = False,
        portable: bool = False,
        tile: PositiveInt | None = None,
    ) -> None:
        """
        Args:
            threads: CPU threads; null: torch's choice, or 1 if portable or with a tile.
            gpu: auto | h100 | h200 | a100_80gb | rtx4090 | ...: the GPU to plan for; auto: the one
                that nvidia-smi reports.
            memory_gb: GiB to plan for; null: that of gpu, or of a CPU its machine.
            deterministic: On a GPU: the same bits in each run, by slower kernels; a CPU computes
                them anyway.
            portable: On a CPU: the same bits on any x86-64-v3 processor with as many threads; on
                one with AVX-512 an iteration takes about twice as long.
            tile: Samples or items of every pass, cut by their numbers, and sums in an order that
                only these give: the same bits for any micro_batch, sample_batch and number of
                processes or threads; null: free.
        """
        del gpu, memory_gb  # the plan reads them
        self.tile = tile
        self._modes = ExitStack()
        if deterministic:  # before anything starts CUDA
            self._modes.enter_context(deterministic_algorithms())
        has_gpu = torch.cuda.is_available()
        if device == "cuda" and not has_gpu:
            raise HardwareError("hardware.device=cuda, but torch finds no GPU; try hardware=cpu")
        self.device = torch.device(("cuda" if has_gpu else "cpu") if device == "auto" else device)
        if portable:
            self._require_portable_kernels()
            self._modes.enter_context(exact_square_roots())
            threads = threads or 1  # the number of cores differs from machine to machine
        if tile is not None:
            threads = 1  # several would divide a sum; more cores are used by more processes
        if threads is not None:
            torch.set_num_threads(threads)
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=loss_scaling)
        self._overflows = 0
        self._peak = 0.0  # GiB allocated until the last `take_peak_memory`
        if self.device.type == "cuda":
            use_expandable_segments()
            # the fastest convolutions for each shape, found by trying, are not always the same
            cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """Portable bits need a CPU that has the instructions, and no variables against them."""
        from rlfactory.hardware.portable import conflicts

        if not options.get("portable"):
            return
        if options["device"] == "cuda":
            message = "is true, and hardware.device=cuda; portable are the bits of a CPU"
            yield "portable", message, "hardware.device=cpu"
        for fault in conflicts():
            yield "portable", fault, "hardware.portable=false"

    def _require_portable_kernels(self) -> None:
        """Raise HardwareError unless this process computes on the CPU by portable kernels."""
        faults = [*conflicts()]
        if not faults and (missing := unset()):
            faults.append(missing)
        if self.device.type != "cpu":
            faults.append("is for a CPU, and torch finds a GPU; type hardware=cpu")
        elif (found := torch.backends.cpu.get_cpu_capability()) != "AVX2":
            faults.append(f"needs kernels for AVX2, and torch's are {found} here")
        if faults:
            raise HardwareError(f"hardware.portable=true {'; '.join(faults)}")

    def prepare(self, model: Any) -> None:
        if self.tile is not None:
            add_by_block(model.network)
            model.may_share_prompts = False

    def backward(self, loss: Tensor) -> None:
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        max_grad_norm: float,
    ) -> float | None:
        # torch makes the scale for the first loss, and a rank without samples has had none
        self._scaler.scale(torch.zeros((), device=self.device))
        self._scaler.unscale_(optimizer)  # before clipping: the limit is of unscaled gradients
        norm = nn.utils.clip_grad_norm_(parameters, max_grad_norm)
        return self.step_if_finite(optimizer, norm)

    def unscale(self, norm: Tensor) -> tuple[Tensor, Tensor]:
        """The norm of the unscaled gradients, from that of scaled ones, and the factor between.

        Stands for `GradScaler.unscale_` where gradients are sharded: an overflow is seen in the
        global norm, which is the same in all ranks.
        """
        if not self._scaler.is_enabled():
            return norm, torch.ones_like(norm)
        probe = nn.Parameter(torch.zeros(2, device=norm.device))
        probe.grad = torch.stack([norm, torch.ones_like(norm)]).float()
        self._scaler.unscale_(torch.optim.SGD([probe], lr=0.0))
        unscaled, factor = probe.grad.to(norm.dtype)
        return unscaled, factor

    def step_if_finite(self, optimizer: torch.optim.Optimizer, norm: Tensor) -> float | None:
        """Step with clipped gradients whose norm was `norm`, and clear them; as `step` returns."""
        value = float(norm)
        is_finite = math.isfinite(value)
        if is_finite and value > 0:  # momentum and weight decay would move weights without signal
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if not self._scaler.is_enabled():
            return value
        self._scaler.update()
        self._overflows = 0 if is_finite else self._overflows + 1
        if is_finite:
            return value
        scale = self._scaler.get_scale()
        log.info("an update was skipped: gradients overflowed; the loss scale is now %g", scale)
        if self._overflows == OVERFLOWS:
            raise HardwareError(
                f"gradients overflowed float16 in {OVERFLOWS} updates in a row, with losses scaled"
                f" down to {scale:g} times; try precision=bf16, or a smaller optimizer.lr"
            )
        return None

    def all_gather(self, values: Tensor) -> Tensor:
        return values

    def any_rank(self, flag: bool) -> bool:
        return flag

    def close(self) -> None:
        self._modes.close()

    def peak_memory(self) -> float:
        """The most that torch has allocated on the GPU, or the process's largest resident set."""
        if self.device.type == "cuda":
            return max(self._peak, torch.cuda.max_memory_allocated(self.device) / 2**30)
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30

    def take_peak_memory(self) -> dict[str, float]:
        """The peak that torch's allocator counted on this GPU."""
        if self.device.type != "cuda":
            return {}
        self._peak = self.peak_memory()  # its own count begins again
        peaks = {
            "allocated": torch.cuda.max_memory_allocated(self.device) / 2**30,
            "reserved": torch.cuda.max_memory_reserved(self.device) / 2**30,
        }
        torch.cuda.reset_peak_memory_stats(self.device)
        return peaks

    def state_dict(self) -> dict[str, Any]:
        """The loss scale and the number of consecutive overflows; empty without scaling."""
        if not self._scaler.is_enabled():
            return {}
        return {"scaler": self._scaler.state_dict(), "overflows": self._overflows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; one without loss scaling leaves the scale of a new run."""
        if self._scaler.is_enabled() and "scaler" in state:
            self._scaler.load_state_dict(dict(state["scaler"]))
            self._overflows = int(state["overflows"])


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Within the `with`, operations have deterministic algorithms, or raise a RuntimeError.

    Enter it before anything is computed on a GPU: cuBLAS reads its variable when it starts.
    Attention is left to torch's flash, memory-efficient and plain kernels, whose backward passes
    are deterministic in this mode; cuDNN's is not, and is disabled.

    Raises:
        HardwareError: CUBLAS_WORKSPACE_CONFIG is set to a value that is not deterministic.
    """
    given = os.environ.get(WORKSPACE)
    if given not in (None, *WORKSPACES):
        raise HardwareError(
            f"hardware.deterministic=true, but {WORKSPACE} is {given}; unset it, or type"
            f" {WORKSPACE}={WORKSPACES[0]}"
        )
    options: Any = deterministic  # torch declares no types for it
    was_enabled = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = options.fill_uninitialized_memory
    attention = cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    was_deterministic, benchmarked = cudnn.deterministic, cudnn.benchmark
    os.environ.setdefault(WORKSPACE, WORKSPACES[0])
    torch.use_deterministic_algorithms(True)
    # a help to find reads of memory that nobody wrote, which costs a pass over each new tensor
    options.fill_uninitialized_memory = False
    cudnn.deterministic, cudnn.benchmark = True, False
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_enabled, warn_only=only_warned)
        options.fill_uninitialized_memory = fills
        cudnn.deterministic, cudnn.benchmark = was_deterministic, benchmarked
        cuda.enable_cudnn_sdp(attention)
        if given is None:
            os.environ.pop(WORKSPACE, None)


@contextmanager
def exact_square_roots() -> Iterator[None]:
    """Within the `with`, `torch.sqrt` on the CPU is the nearest number, as IEEE 754 wants it.

    oneMKL's branch COMPATIBLE misses one of six by a bit: it improves the processor's approximation
    of 1/sqrt, which Intel's and AMD's give differently. AdamW takes roots in each step.
    """
    kernels: Any = torch.library  # torch declares no types for it
    library = kernels.Library("aten", "IMPL", "CPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced
        library.impl("sqrt", exact_sqrt)
        library.impl("sqrt_", lambda values: values.copy_(exact_sqrt(values)))
    try:
        yield
    finally:
        library._destroy()


def exact_sqrt(values: Tensor) -> Tensor:
    """The root of each value, of the dtype of `torch.sqrt`; without gradients."""
    if values.dtype not in (torch.float32, torch.float64):
        return torch.pow(values, 0.5)  # the replaced kernel
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.asarray(np.sqrt(values.detach().numpy())))
