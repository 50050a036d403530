"""At which times the forward-process algorithms noise a sample.

A sample gets `count` times in one update. Published samplers shuffle them after stratification,
because they step through them one slot at a time; here all times of a sample meet in one update,
where their order means nothing, so there is no shuffle. Time 1 is pure noise. Time 0 is the clean
sample, from which nothing is learned: where an algorithm divides by the time, keep `low` above 0.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.dynamics.schedule import shifted
from rlfactory.model.pipeline import ModelError
from rlfactory.types import Fraction, Positive, PositiveFraction, PositiveInt

Shared = Literal["sample", "group", "batch"]
Toward = Literal["noisy", "clean"]


class Times(ABC):
    """A choice of `count` times in [0, 1].

    `of_schedule` says that they are times of the sampling schedule. `shared` says who gets the
    same draws: each sample its own, a group, or a batch, which is all samples of an iteration.
    """

    of_schedule: ClassVar[bool] = False
    count: int
    shared: Shared

    @abstractmethod
    def draw(self, uniform: Tensor, times: Tensor) -> Tensor:
        """Times `[B, count]` from uniform draws `[B, count]` and the schedule's `times [n + 1]`,
        descending, the last of them the end.
        """

    def require_steps(self, times: Tensor) -> None:
        """Raise a ModelError where the schedule's `times [n + 1]` are too few to choose from."""
        del times


def uniform_draws(
    times: Times, index: Tensor, groups: Tensor, *, seed: int, iteration: int
) -> Tensor:
    """Uniform `[B, count]` on [0, 1), keyed by what shares them: sample, group or nothing."""
    rows = {"sample": index, "group": groups, "batch": torch.zeros_like(index)}[times.shared]
    return keyed.uniform(seed, "times", [iteration], rows.tolist(), [times.count])


def stratified(draws: Tensor) -> Tensor:
    """One time in each of T equal bins of [0, 1), from uniform draws `[B, T]`."""
    bins = draws.shape[1]
    return (torch.arange(bins) + draws) / bins


def logit_normal(u: Tensor) -> Tensor:
    """Sigmoids of standard normals, by inversion of their distribution at `u`."""
    normal: Tensor = torch.special.ndtri(u.clamp(1e-7, 1 - 1e-7))
    return normal.sigmoid()


class UniformTimes(Times):
    """Evenly spread over [low, high), then shifted.

    `toward` noisy is AWM's and SD3's orientation: `t = shifted(low + (high - low) u)`. Toward the
    clean end a fraction `f = (1 - high) + (high - low) u` of the way from noise is shifted,
    `t = 1 - shifted(f)`, as Flow-Factory does since its pull request 113.
    """

    def __init__(
        self,
        *,
        count: PositiveInt = 4,
        stratified: bool = True,
        low: Fraction = 0.0,
        high: PositiveFraction = 1.0,
        shift: Positive = 1.0,
        toward: Toward = "noisy",
        shared: Shared = "sample",
    ) -> None:
        self.count, self.stratified = count, stratified
        self.low, self.high, self.shift = low, high, shift
        self.toward: Toward = toward
        self.shared: Shared = shared

    def draw(self, uniform: Tensor, times: Tensor) -> Tensor:
        """Range, then shift: the bounds are those before it, as published."""
        del times
        u = stratified(uniform) if self.stratified else uniform
        if self.toward == "noisy":
            return shifted(self.low + (self.high - self.low) * u, self.shift)
        return 1 - shifted((1 - self.high) + (self.high - self.low) * u, self.shift)


class LogitNormalTimes(Times):
    """Sigmoids of normals, shifted, at least `least`, then spread over [low, high].

    `toward` noisy gives `t = low + (high - low) r` (AWM: `r` itself is the time), clean gives
    `t = high - (high - low) r` (Flow-Factory since its pull request 113).
    """

    def __init__(
        self,
        *,
        count: PositiveInt = 4,
        stratified: bool = True,
        low: Fraction = 0.0,
        high: PositiveFraction = 1.0,
        shift: Positive = 3.0,
        least: Fraction = 0.01,
        toward: Toward = "noisy",
        shared: Shared = "sample",
    ) -> None:
        self.count, self.stratified = count, stratified
        self.low, self.high, self.shift, self.least = low, high, shift, least
        self.toward: Toward = toward
        self.shared: Shared = shared

    def draw(self, uniform: Tensor, times: Tensor) -> Tensor:
        """Shift, then range, as published."""
        del times
        r = logit_normal(stratified(uniform) if self.stratified else uniform)
        spread = (self.high - self.low) * shifted(r, self.shift).clamp(min=self.least)
        return self.low + spread if self.toward == "noisy" else self.high - spread


def edges(start: int, end: int, bins: int) -> Tensor:
    """`[bins + 1]` bounds of bins of step numbers, as even as whole numbers allow."""
    return torch.linspace(start, end, bins + 1).long()


def one_in_each(draws: Tensor, bounds: Tensor) -> Tensor:
    """A step number in each bin, `[B, T]`, from uniform draws; the upper bound is excluded."""
    low, high = bounds[:-1], bounds[1:]
    return low + (draws * (high - low)).long()


class DiscreteTimes(Times):
    """One of the schedule's own times in each of `count` bins of its first steps.

    `space` says what `fraction` is of. index: of the n steps, bins from 0 to `int(n fraction)`
    (AWM). sigma: of the time from 1 to 0, bins from 0 to the last step whose time is `1 - fraction`
    or more (Flow-Factory). The upper bound is excluded in both, so sigma never draws its last step.
    `first` is drawn like any other step, `always` taken besides `count - 1` others, or `never`.
    """

    of_schedule = True

    def __init__(
        self,
        *,
        count: PositiveInt = 4,
        fraction: PositiveFraction = 0.9,
        space: Literal["index", "sigma"] = "index",
        first: Literal["drawn", "always", "never"] = "drawn",
        shared: Shared = "sample",
    ) -> None:
        self.count, self.fraction = count, fraction
        self.space: Literal["index", "sigma"] = space
        self.first: Literal["drawn", "always", "never"] = first
        self.shared: Shared = shared

    def end(self, times: Tensor) -> int:
        """The step number that bins end before, for the schedule's `times [n + 1]`."""
        sampled = times[:-1]
        if self.space == "index":
            return int(len(sampled) * self.fraction)
        return int((sampled >= 1 - self.fraction - 1e-6).sum()) - 1

    def bounds(self, times: Tensor) -> Tensor:
        """Bounds of the bins that are drawn from."""
        bins = self.count - int(self.first == "always")
        return edges(int(self.first != "drawn"), self.end(times), bins)

    def require_steps(self, times: Tensor) -> None:
        """No bin is empty; the plan can't tell where the noise levels depend on the model."""
        if (self.bounds(times).diff() < 1).any():
            raise ModelError(
                f"times.fraction={self.fraction} of the {self.space} leaves too few of the"
                f" {len(times) - 1} sampled steps to draw times.count={self.count} from;"
                " lower the count or raise the fraction"
            )

    def draw(self, uniform: Tensor, times: Tensor) -> Tensor:
        """The times of the steps that are drawn, from the noisy end."""
        bounds = self.bounds(times)
        steps = one_in_each(uniform[:, : len(bounds) - 1], bounds)
        if self.first == "always":
            steps = torch.cat([steps.new_zeros(len(steps), 1), steps], dim=1)
        return times[steps]


class RolloutTimes(Times):
    """`count` of the schedule's own times at random, none twice (DiffusionNFT: all but one)."""

    of_schedule = True

    def __init__(self, *, count: PositiveInt = 9, shared: Shared = "sample") -> None:
        self.count = count
        self.shared: Shared = shared

    def draw(self, uniform: Tensor, times: Tensor) -> Tensor:
        """The beginning of a Fisher-Yates shuffle, a draw for each place."""
        steps = len(times) - 1
        order = torch.arange(steps).repeat(len(uniform), 1)
        rows = torch.arange(len(uniform))
        for place in range(self.count):
            chosen = place + (uniform[:, place] * (steps - place)).long()
            taken, left = order[rows, chosen], order[:, place].clone()
            order[rows, chosen] = left
            order[:, place] = taken
        return times[order[:, : self.count]]
