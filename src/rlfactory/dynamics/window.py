"""SDE windows: which steps of a rollout are stochastic and trained; the others follow the ODE.

The window of an iteration is shared by all samples, so that the members of a group differ in the
same steps. No window is empty, and none is shorter than its `size`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, ClassVar, Literal

import torch

from rlfactory.utils import rng
from rlfactory.utils.types import Faults, NonNegative, NonNegativeInt, PositiveInt

AtEnd = Literal["clip", "roll_back"]


class Window(ABC):
    """The contract of a window.

    Keyword-only constructor parameters are the configuration (`conf/window/`); there are no
    run-time arguments. `steps` is called once an iteration, before sampling. Class attributes must
    be literals: checks read them.

    Attributes:
        margin: How many steps at the clean end are never chosen if `high` is not set.
        noisier_half: Whether only the noisier half is chosen from if `high` is not set.
    """

    margin: ClassVar[int] = 0
    noisier_half: ClassVar[bool] = False

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """A window holds at least one step, and only steps of the schedule."""
        steps, low, chosen = run["schedule"]["steps"], options.get("low", 0), options.get("steps")
        high = options.get("high") or max(steps - options["margin"], 1)
        if outside := [step for step in chosen or () if step >= steps]:
            inside = ",".join(str(step) for step in chosen or () if step < steps)
            message = f"{outside} lie outside the {steps} steps, 0 to {steps - 1}"
            yield "steps", message, f"window.steps=[{inside}]"
        if chosen == []:
            yield "steps", "is empty, so nothing would be trained", "window.steps=[0,1]"
        if options.get("skip_last", 0) >= steps:
            message = f"skips {options['skip_last']} of {steps} steps, so nothing would be trained"
            yield "skip_last", message, "window.skip_last=1"
        if high > steps:
            yield "high", f"is {high}, but there are {steps} steps", f"window.high={steps}"
        elif low >= high:
            message = f"is {low}, but the steps to choose from end at {high - 1}"
            yield "low", message, "window.low=0"
        elif options.get("size", 1) > high - low:
            message = f"is {options['size']}, but steps {low} to {high - 1} are {high - low}"
            yield "size", message, f"window.size={high - low}"

    @abstractmethod
    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """Choose the stochastic steps of an iteration.

        Args:
            total: Number of sampling steps; step 0 starts from noise.
            seed: The run's seed.
            iteration: Number of the iteration, from 0.

        Returns:
            Step numbers out of `range(total)`, ascending.
        """


class All(Window):
    """All steps but the last ones, whose small std makes likelihood ratios explode.

    Args:
        skip_last: Number of steps to leave out at the clean end.
    """

    def __init__(self, *, skip_last: NonNegativeInt = 0) -> None:
        self.skip_last = skip_last

    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """Steps 0 to `total - skip_last - 1`."""
        return list(range(total - self.skip_last))


class FixedSteps(Window):
    """The same steps in each iteration.

    Args:
        steps: Their numbers, counted from the noisy end, where the layout is decided.
    """

    def __init__(self, *, steps: list[NonNegativeInt]) -> None:
        self.chosen = sorted(set(steps))

    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """The configured steps."""
        return self.chosen


class RandomSubset(Window):
    """Random steps, not necessarily adjacent, drawn for each iteration (Flow-Factory).

    Args:
        size: Number of steps.
        low: First step to choose from.
        high: End (excluded) of the steps to choose from; None: the number of steps.
    """

    def __init__(
        self, *, size: PositiveInt = 2, low: NonNegativeInt = 0, high: PositiveInt | None = None
    ) -> None:
        self.size, self.low, self.high = size, low, high

    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """A random subset of `[low, high)` without replacement."""
        candidates = torch.arange(self.low, self.high or total)
        order = torch.randperm(len(candidates), generator=rng.generator(seed, "window", iteration))
        return sorted(candidates[order[: self.size]].tolist())


class RandomContiguous(RandomSubset):
    """Adjacent steps from a random start, drawn for each iteration (Flow-GRPO-Fast).

    Args:
        high: End (excluded) of the steps to choose from; None: half the number of steps, as
            published, or `low + size` if that is more.
    """

    noisier_half = True

    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """`size` adjacent steps; each start from `low` to `high - size` is equally likely."""
        last = (self.high or max(total // 2, self.low + self.size)) - self.size
        generator = rng.generator(seed, "window", iteration)
        start = int(torch.randint(self.low, last + 1, (), generator=generator))
        return list(range(start, start + self.size))


def window_starts(low: int, last: int, step: int) -> list[int]:
    """Successive first steps of a moving window: from `low` by `step`, the final one at `last`.

    A step of 0 gives `low` alone.
    """
    return [low] if not step or last <= low else [*range(low, last, step), last]


def position_at(iteration: int, dwells: list[int], at_end: AtEnd) -> int:
    """Index of the window's position at an iteration, with position i held for `dwells[i]`.

    After the last position the window stays (`clip`) or starts again (`roll_back`).
    """
    ends = list(accumulate(dwells))
    if at_end == "roll_back":
        iteration %= ends[-1]
    return next((i for i, end in enumerate(ends) if iteration < end), len(ends) - 1)


class MovingWindow(Window):
    """Base of windows that move from the noisy end to the clean one (MixGRPO, arXiv 2507.21802).

    `size` adjacent steps, held for `dwell` iterations at each position. The published window
    shrinks at the clean end and finally is empty; this one keeps its size.

    Args:
        size: Number of steps.
        iterations: Iterations at a position, as the subclass says.
        step: How far the window moves; 0: not at all; None: by its size, without overlap.
        low: First step of the first position.
        high: End (excluded) of the last position; None: the last two steps are left out, as
            published.
        at_end: After the last position: stay there (`clip`) or start again (`roll_back`).
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
        self.size, self.iterations, self.low = size, iterations, low
        self.high, self.at_end = high, at_end
        self.step = size if step is None else step

    @abstractmethod
    def dwell(self, start: int, high: int) -> int:
        """Number of iterations for which the window stays at `start`, out of `[low, high)`."""

    def steps(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """The window at this iteration's position."""
        high = self.high or max(total - self.margin, 1)
        starts = window_starts(self.low, high - self.size, self.step)
        dwells = [self.dwell(start, high) for start in starts]
        start = starts[position_at(iteration, dwells, self.at_end)]
        return list(range(start, start + self.size))


class Progressive(MovingWindow):
    """A moving window that stays equally long everywhere; see `MovingWindow`.

    Args:
        iterations: Iterations at each position.
    """

    def dwell(self, start: int, high: int) -> int:
        """`iterations`."""
        return self.iterations


class Decay(MovingWindow):
    """A moving window that stays linearly shorter towards the clean end; see `MovingWindow`.

    Args:
        iterations: Iterations at step 0.
        least: Iterations at the end of the range; None: a quarter of `iterations`.
    """

    def __init__(self, *, least: PositiveInt | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.least = least or max(1, self.iterations // 4)

    def dwell(self, start: int, high: int) -> int:
        """`iterations (1 - start / high) + least start / high`, rounded down."""
        progress = start / high
        mixed = self.iterations * (1 - progress) + self.least * progress
        return max(self.least, int(mixed))


class ExpDecay(MovingWindow):
    """A moving window that stays exponentially shorter beyond `threshold`; see `MovingWindow`.

    Args:
        iterations: Iterations at positions up to `threshold`.
        threshold: Published: 13, for 25 steps; with fewer than 18 steps it is never reached.
        rate: Decay rate for each step beyond the threshold.
    """

    def __init__(
        self, *, threshold: NonNegativeInt = 13, rate: NonNegative = 0.1, **options: Any
    ) -> None:
        super().__init__(**options)
        self.threshold, self.rate = threshold, rate

    def dwell(self, start: int, high: int) -> int:
        """`ceil(iterations exp(-rate max(0, start - threshold)))`."""
        beyond = max(0, start - self.threshold)
        return math.ceil(self.iterations * math.exp(-self.rate * beyond))
