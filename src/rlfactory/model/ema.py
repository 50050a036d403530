"""EMA schedules: the decay of a weight set that follows the policy, and when it is updated.

Torch-free, since the configuration schema imports `EMASchedule`.
"""

import math
from dataclasses import dataclass
from typing import Literal

from rlfactory.utils.types import BelowOne, NonNegativeInt, Positive, PositiveInt

Clock = Literal["step", "iteration"]
Schedule = Literal[
    "constant",
    "power",
    "linear",
    "piecewise_linear",
    "cosine",
    "warmup_cosine",
    "nft_0",
    "nft_1",
    "nft_2",
]


@dataclass(frozen=True)
class EMASchedule:
    """`kept <- d kept + (1 - d) policy` at every `interval`-th `update`.

    `clock` is what the schedule of d counts, and may differ from `update`. An optimizer step is
    counted when it is done; of iterations the current one counts, so the first is 1.
    """

    schedule: Schedule
    decay: BelowOne
    initial: BelowOne
    warmup: PositiveInt
    flat: NonNegativeInt
    ramp: Positive
    total: PositiveInt
    clock: Clock
    update: Clock
    interval: PositiveInt

    def decay_at(self, moment: Clock, *, step: int, iteration: int) -> float | None:
        """The decay to apply after a step or an iteration (`moment`); None: no update is due."""
        count = {"step": step, "iteration": iteration}
        if moment != self.update or count[moment] % self.interval:
            return None
        return self.after(count[self.clock])

    def after(self, count: int) -> float:
        """The decay at a count of the clock."""
        match self.schedule:
            case "constant":
                return self.decay
            case "power":
                return power(count, self.decay, self.warmup)
            case "linear":
                return linear(count, self.decay, self.initial, self.warmup)
            case "piecewise_linear":
                return piecewise_linear(count, self.decay, self.flat, self.ramp)
            case "cosine":
                return cosine(count, self.decay, self.initial, self.total)
            case "warmup_cosine":
                return warmup_cosine(count, self.decay, self.initial, self.warmup, self.total)
            # DiffusionNFT's `return_decay`, types 0 to 2; type 0 copies the policy at each update
            case "nft_0":
                return 0.0
            case "nft_1":
                return piecewise_linear(count, 0.5)
            case "nft_2":
                return piecewise_linear(count, 0.999, flat=75, ramp=0.0075)


def power(t: int, decay: float, warmup: int = 10) -> float:
    """`min(decay, (1 + t) / (warmup + t))`: a low decay first, so that the start fades quickly."""
    return min(decay, (1 + t) / (warmup + t))


def linear(t: int, decay: float, initial: float = 0.0, warmup: int = 100) -> float:
    """From `initial` to `decay` over `warmup` counts."""
    return decay if t >= warmup else initial + (decay - initial) * (t / warmup)


def piecewise_linear(t: int, decay: float, flat: int = 0, ramp: float = 0.001) -> float:
    """0 until `flat`, then rises by `ramp` per count, up to `decay`."""
    return 0.0 if t < flat else min((t - flat) * ramp, decay)


def cosine(t: int, decay: float, initial: float = 0.9, total: int = 1000) -> float:
    """From `initial` to `decay` over `total` counts, along half a cosine."""
    return initial + (decay - initial) * (1 - math.cos(math.pi * min(t / total, 1.0))) / 2


def warmup_cosine(
    t: int, decay: float, initial: float = 0.9, warmup: int = 100, total: int = 1000
) -> float:
    """Linear from 0 to `initial` over `warmup` counts, then half a cosine to `decay`."""
    if t < warmup:
        return initial * (t / warmup)
    return cosine(t - warmup, decay, initial, total - warmup)
