"""Work of a pass of a network, and how long a device takes for it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rlfactory.config.prediction.devices import GPUModel

MATMUL_EFFICIENCY = 0.62
"""The part of a GPU's peak that large matrix products and attention reach in practice."""
BANDWIDTH_EFFICIENCY = 0.75
"""The same of the bandwidth of its memory, for operators that only read and write."""
RUN_EFFICIENCY = 0.7
"""The part of an iteration in which a GPU works at these speeds: the only number that was fitted to
published runs (docs/prediction.md). The rest are waits, work of the host, and uneven ranks."""
LAUNCH_SECONDS = 7e-6
"""Host time of PyTorch for one eager kernel; a GPU that is faster than this waits for the host."""
LINK_EFFICIENCY = 0.6
"""The part of the bandwidth between GPUs that collectives reach."""

Rate = Literal["", "half", "single", "convolution"]
"""A speed of `Speeds`; empty where there are no FLOPs."""


def rate_of(half: bool) -> Rate:
    """The speed of matrix products in half or single precision."""
    return "half" if half else "single"


@dataclass(frozen=True)
class Work:
    """What a pass asks of a device.

    Attributes:
        flops: of matrix products, convolutions and attention.
        bytes: that all other operators read and write, and weights that are read for few rows.
        launches: operators that start a kernel.
        sent: bytes that are exchanged with other GPUs.
        rate: which of a device's speeds matrix products have.
    """

    flops: float = 0.0
    bytes: float = 0.0
    launches: float = 0.0
    sent: float = 0.0
    rate: Rate = ""

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.flops + other.flops,
            self.bytes + other.bytes,
            self.launches + other.launches,
            self.sent + other.sent,
            self.rate or other.rate,
        )

    def __mul__(self, times: float) -> "Work":
        return Work(
            times * self.flops,
            times * self.bytes,
            times * self.launches,
            times * self.sent,
            self.rate,
        )


def total(works: Iterable[Work]) -> Work:
    """The sum."""
    return sum(works, Work())


@dataclass(frozen=True)
class Speeds:
    """How fast a device works.

    Attributes:
        half: FLOP/s that are reached in half precision.
        single: the same in float32.
        convolution: the same of convolutions in float32, which PyTorch computes in TF32 on a GPU.
        bandwidth: bytes/s that are reached.
        launch: seconds of the host for each launch.
        link: bytes/s that collectives reach.
        is_async: launches overlap with the work of the kernels, as on a GPU.
    """

    half: float
    single: float
    convolution: float
    bandwidth: float
    launch: float
    link: float
    is_async: bool = True

    @classmethod
    def of(cls, gpu: GPUModel) -> "Speeds":
        """Those of a GPU, by its data sheet and the efficiencies above."""
        matmul = RUN_EFFICIENCY * MATMUL_EFFICIENCY
        return cls(
            half=matmul * gpu.half,
            single=matmul * gpu.single,
            convolution=matmul * gpu.tf32,
            bandwidth=RUN_EFFICIENCY * BANDWIDTH_EFFICIENCY * gpu.bandwidth,
            launch=LAUNCH_SECONDS / RUN_EFFICIENCY,
            link=RUN_EFFICIENCY * LINK_EFFICIENCY * gpu.link,
        )

    def seconds(self, work: Work) -> float:
        """Of one pass: kernels run one after another, and a GPU's beside their launches."""
        rates = {"half": self.half, "convolution": self.convolution}
        kernels = work.flops / rates.get(work.rate, self.single) + work.bytes / self.bandwidth
        launches = work.launches * self.launch
        sent = work.sent / self.link
        return (max(kernels, launches) if self.is_async else kernels + launches) + sent
