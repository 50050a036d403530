"""Which steps of a rollout are stochastic, and so are trained; the others follow the ODE.

A window is drawn once an iteration and shared by all samples, so that the members of a group
compare like with like. No window is ever empty, and none is shorter than its `size`.
"""

import math
from abc import ABC, abstractmethod
from itertools import accumulate
from typing import ClassVar, Literal

import torch

from rlfactory import keyed
from rlfactory.types import NonNegative, NonNegativeInt, PositiveInt

AtEnd = Literal["clip", "roll_back"]


class Window(ABC):
    """A choice of steps. `margin` is how many are left out at the clean end without a `high`."""

    margin: ClassVar[int] = 0

    @abstractmethod
    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """The chosen steps, ascending, out of `range(total)`."""


class All(Window):
    """Every step but the last `skip_last`, whose slight noise makes likelihood ratios explode."""

    def __init__(self, *, skip_last: NonNegativeInt = 0) -> None:
        self.skip_last = skip_last

    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """All steps that are not skipped."""
        del seed, iteration
        return list(range(total - self.skip_last))


class Fixed(Window):
    """The same steps in each iteration."""

    def __init__(self, *, steps: list[NonNegativeInt]) -> None:
        self.chosen = sorted(set(steps))

    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """The given steps."""
        del total, seed, iteration
        return self.chosen


class RandomSubset(Window):
    """`size` steps out of `[low, high)`, not necessarily adjacent (Flow-Factory)."""

    def __init__(
        self, *, size: PositiveInt = 2, low: NonNegativeInt = 0, high: PositiveInt | None = None
    ) -> None:
        self.size, self.low, self.high = size, low, high

    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """A random subset, without replacement."""
        pool = torch.arange(self.low, self.high or total)
        order = torch.randperm(len(pool), generator=keyed.generator(seed, "window", iteration))
        return sorted(pool[order[: self.size]].tolist())


class RandomContiguous(Window):
    """`size` adjacent steps within `[low, high)` (Flow-GRPO-Fast).

    Without `high` they lie in the noisier half, as published, or reach as far as `size` needs.
    """

    noisier_half = True

    def __init__(
        self, *, size: PositiveInt = 2, low: NonNegativeInt = 0, high: PositiveInt | None = None
    ) -> None:
        self.size, self.low, self.high = size, low, high

    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """A run of steps with a random start; the last possible start is included."""
        last = (self.high or max(total // 2, self.low + self.size)) - self.size
        drawn = torch.randint(
            self.low, last + 1, (), generator=keyed.generator(seed, "window", iteration)
        )
        start = int(drawn)
        return list(range(start, start + self.size))


def starts(low: int, last: int, step: int) -> list[int]:
    """Where a moving window stands, in order: from `low` by `step` up to `last`, never beyond.

    Each place but the last is a whole number of steps from `low`; a window that would stick out
    is moved back to `last`. A step of 0 never leaves `low`.
    """
    return [low] if not step or last <= low else [*range(low, last, step), last]


def place(iteration: int, dwells: list[int], at_end: AtEnd) -> int:
    """The number of the place that `iteration` falls on, if each is kept for `dwells` iterations.

    After the last one the window stays there (`clip`) or begins anew (`roll_back`).
    """
    ends = list(accumulate(dwells))
    if at_end == "roll_back":
        iteration %= ends[-1]
    return next((i for i, end in enumerate(ends) if iteration < end), len(ends) - 1)


def due(
    places: list[int], dwells: list[int], size: int, iteration: int, at_end: AtEnd
) -> list[int]:
    """The `size` steps of the window at the place that `iteration` falls on."""
    start = places[place(iteration, dwells, at_end)]
    return list(range(start, start + size))


class Progressive(Window):
    """`size` adjacent steps that move from the noisy end to the clean one (MixGRPO, 2507.21802).

    They stay for `iterations` and move on by `step`: 0 is a frozen window, null the size, so that
    windows do not overlap. Without `high`, the last two steps are never chosen, as published. The
    published window shrinks at that end and is empty at last; this one keeps its size.
    """

    margin = 2

    def __init__(
        self,
        *,
        size: PositiveInt = 4,
        iterations: PositiveInt = 25,
        step: NonNegativeInt | None = 1,
        low: NonNegativeInt = 0,
        high: PositiveInt | None = None,
        at_end: AtEnd = "clip",
    ) -> None:
        self.size, self.low, self.high = size, low, high
        self.iterations, self.at_end = iterations, at_end
        self.step = size if step is None else step

    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """The window that is due."""
        del seed
        high = self.high or max(total - self.margin, 1)
        places = starts(self.low, high - self.size, self.step)
        return due(places, [self.iterations] * len(places), self.size, iteration, self.at_end)


class Decay(Window):
    """A moving window that stays the shorter the nearer to the clean end it is (MixGRPO):

    `iterations` at step 0, falling linearly towards `least` (null: a quarter) at the range's end.
    """

    margin = 2

    def __init__(
        self,
        *,
        size: PositiveInt = 4,
        iterations: PositiveInt = 25,
        least: PositiveInt | None = None,
        step: NonNegativeInt | None = 1,
        low: NonNegativeInt = 0,
        high: PositiveInt | None = None,
        at_end: AtEnd = "clip",
    ) -> None:
        self.size, self.low, self.high = size, low, high
        self.iterations, self.at_end = iterations, at_end
        self.least = least or max(1, iterations // 4)
        self.step = size if step is None else step

    def dwell(self, start: int, high: int) -> int:
        """For how many iterations the window stays at `start`."""
        progress = start / high
        mixed = self.iterations * (1 - progress) + self.least * progress
        return max(self.least, int(mixed))

    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """The window that is due."""
        del seed
        high = self.high or max(total - self.margin, 1)
        places = starts(self.low, high - self.size, self.step)
        dwells = [self.dwell(start, high) for start in places]
        return due(places, dwells, self.size, iteration, self.at_end)


class ExpDecay(Window):
    """A moving window that stays ever shorter beyond `threshold` (MixGRPO):

    `ceil(iterations exp(-rate max(0, start - threshold)))` iterations at `start`. The published
    threshold of 13 counts steps of 25; with fewer than 18 steps it is never reached.
    """

    margin = 2

    def __init__(
        self,
        *,
        size: PositiveInt = 4,
        iterations: PositiveInt = 25,
        threshold: NonNegativeInt = 13,
        rate: NonNegative = 0.1,
        step: NonNegativeInt | None = 1,
        low: NonNegativeInt = 0,
        high: PositiveInt | None = None,
        at_end: AtEnd = "clip",
    ) -> None:
        self.size, self.low, self.high = size, low, high
        self.iterations, self.at_end = iterations, at_end
        self.threshold, self.rate = threshold, rate
        self.step = size if step is None else step

    def dwell(self, start: int) -> int:
        """For how many iterations the window stays at `start`."""
        beyond = max(0, start - self.threshold)
        return math.ceil(self.iterations * math.exp(-self.rate * beyond))

    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """The window that is due."""
        del seed
        high = self.high or max(total - self.margin, 1)
        places = starts(self.low, high - self.size, self.step)
        dwells = [self.dwell(start) for start in places]
        return due(places, dwells, self.size, iteration, self.at_end)
