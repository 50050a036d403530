"""How fast a device works: by its data sheet, or as this machine measures it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rlfactory.config.memory.devices import GPUModel
from rlfactory.tools.fake_tensors import Work

MATMUL_EFFICIENCY = 0.62
"""The part of a GPU's peak that large matrix products and attention reach in practice."""
BANDWIDTH_EFFICIENCY = 0.75
"""The same of the bandwidth of its memory, for operators that only read and write."""
RUN_EFFICIENCY = 0.7
"""The part of an iteration in which a GPU works at these speeds: the only number that was fitted to
published runs (docs/estimate.md). The rest are waits, work of the host, and uneven ranks."""
LAUNCH_SECONDS = 7e-6
"""Host time of PyTorch for one eager kernel; a GPU that is faster than this waits for the host."""


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
        peaks = (matmul * peak for peak in (gpu.half, gpu.single, gpu.tf32))
        return cls(gpu.name, *peaks, moved, launch)

    def seconds(self, work: Work) -> float:
        """Of some work, whose kernels run one after another."""
        kernels = work.half / self.half + work.single / self.single
        kernels += work.convolution / self.convolution + work.moved / self.moved
        launches = work.launches * self.launch
        return max(kernels, launches) if self.is_async else kernels + launches


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
