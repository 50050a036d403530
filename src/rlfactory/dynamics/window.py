"""Which steps of a rollout are stochastic, and so are trained; the others follow the ODE.

A window is drawn once an iteration and shared by all samples, so that the members of a group
compare like with like.
"""

from abc import ABC, abstractmethod

import torch

from rlfactory import keyed
from rlfactory.types import NonNegativeInt, PositiveInt


class Window(ABC):
    """A choice of steps."""

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
