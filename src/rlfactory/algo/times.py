"""Training times: the noise levels at which forward-process algorithms noise a sample.

Time 1 is pure noise, time 0 the clean sample. A sample gets `count` times, all in one update, so
that their order has no meaning; published samplers shuffle stratified times because they train one
slot of them at a time. Where an algorithm divides by the time, keep `low` above 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlfactory.dynamics.schedule import shifted
from rlfactory.utils import rng
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import Faults, Fraction, Positive, PositiveFraction, PositiveInt

Shared = Literal["sample", "group", "batch"]
Toward = Literal["noisy", "clean"]


class Times(ABC):
    """The contract: `count` times in [0, 1] for each sample.

    Keyword-only constructor parameters are the configuration (`conf/times/`); there are no run-time
    arguments. `require_steps` is called once when the run is built, `draw` in each call of
    `training_items`.

    Attributes:
        from_schedule: Whether the times are those of the sampling schedule.
        count: T, the number of times of a sample.
        shared: Whether each sample has its own random draws, or shares them with its group or with
            the batch (all samples of an iteration).
    """

    from_schedule: ClassVar[bool] = False
    count: int
    shared: Shared

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """The range of times is not empty, and the schedule has enough steps to draw from."""
        low, high = options.get("low") or 0.0, options.get("high") or 1.0
        if low >= high:
            yield "low", f"is {low}, but the range of times ends at {high}", "times.low=0"
        # a fraction of the noise levels never draws its last step, whichever that is
        steps, count = run["schedule"]["steps"], options.get("count", 0)
        in_sigmas = options.get("space") == "sigma"
        end = steps - 1 if in_sigmas else int(steps * (options.get("fraction") or 1))
        drawable = end - (options.get("first") == "never")
        if options["from_schedule"] and count > drawable:
            message = (
                f"is {count}, more training steps than sampled ones:"
                f" {max(drawable, 0)} of {steps} can be drawn"
            )
            remedy = f"times.count={drawable}" if drawable > 0 else f"schedule.steps={10 * count}"
            yield "count", message, remedy

    @abstractmethod
    def draw(self, uniform: Tensor, times: Tensor) -> Tensor:
        """Turn uniform random numbers into times.

        Args:
            uniform: Draws on [0, 1), `[B, T]`.
            times: The rollout's schedule `[n + 1]`, falling to 0.

        Returns:
            Times `[B, T]`.
        """

    def require_steps(self, times: Tensor) -> None:
        """Check that the schedule has enough steps to choose from.

        Args:
            times: The rollout's schedule `[n + 1]`.

        Raises:
            ModelError: It has too few; by default every schedule is accepted.
        """
        del times


def uniform_draws(
    times: Times, index: Tensor, groups: Tensor, *, seed: int, iteration: int
) -> Tensor:
    """Uniform `[B, T]` on [0, 1), keyed by the sample's index, its group, or neither."""
    keys = {"sample": index, "group": groups, "batch": torch.zeros_like(index)}[times.shared]
    return rng.uniform(seed, "times", [iteration], keys.tolist(), [times.count])


def stratified(draws: Tensor) -> Tensor:
    """Stratified uniform numbers `[B, T]`: from draws `[B, T]`, one in each of T equal bins."""
    bins = draws.shape[1]
    return (torch.arange(bins) + draws) / bins


def logit_normal(u: Tensor) -> Tensor:
    """`sigmoid(z)` with z standard normal, by the inverse CDF at `u` in [0, 1)."""
    # clamped: at 0 and 1 the inverse is infinite
    normal: Tensor = torch.special.ndtri(u.clamp(1e-7, 1 - 1e-7))
    return normal.sigmoid()


class RangedTimes(Times):
    """Times in a range, which a shift moves towards one end.

    Args:
        shift: Above 1 it moves times towards the end that `toward` names.
        toward: noisy | clean (see the formulas): end that the shift moves to; Flow-Factory: clean
            since April 2026.
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


class UniformTimes(RangedTimes):
    """Uniform on [low, high), then shifted by `schedule.shifted`. With u uniform:

        toward noisy: t = shifted(low + (high - low) u)               (AWM, SD3)
        toward clean: t = 1 - shifted((1 - high) + (high - low) u)    (Flow-Factory since PR 113)

    Args:
        stratified: Whether the T times of a sample lie in T equal bins.
        low: Lower bound, before the shift.
        high: Upper bound, before the shift.
    """

    def draw(self, uniform: Tensor, times: Tensor) -> Tensor:
        """Range, then shift; the bounds apply before the shift, as published."""
        u = stratified(uniform) if self.stratified else uniform
        if self.toward == "noisy":
            return shifted(self.low + (self.high - self.low) * u, self.shift)
        return 1 - shifted((1 - self.high) + (self.high - self.low) * u, self.shift)


class LogitNormalTimes(RangedTimes):
    """Logit-normal times. With `r = max(shifted(sigmoid(z)), least)` and z standard normal:

        toward noisy: t = low + (high - low) r      (AWM, with low 0 and high 1)
        toward clean: t = high - (high - low) r     (Flow-Factory since PR 113)

    Args:
        stratified: Whether the T times of a sample lie in T bins of equal probability.
        low: Lower bound, after the shift.
        high: Upper bound, after the shift.
        least: Lower bound of r.
    """

    def __init__(self, *, shift: Positive = 3.0, least: Fraction = 0.01, **options: Any) -> None:
        super().__init__(shift=shift, **options)
        self.least = least

    def draw(self, uniform: Tensor, times: Tensor) -> Tensor:
        """Shift, then range, as published; the bounds hold after the shift."""
        r = logit_normal(stratified(uniform) if self.stratified else uniform)
        offset = (self.high - self.low) * shifted(r, self.shift).clamp(min=self.least)
        return self.low + offset if self.toward == "noisy" else self.high - offset


class DiscreteTimes(Times):
    """Times of the sampling schedule: one from each of `count` bins of its first steps.

    Args:
        fraction: The part of the schedule that is used, from the noisy end.
        space: What `fraction` counts. `index`: steps, so bins end at step `int(n fraction)` (AWM).
            `sigma`: time, so bins end at the last step whose time is at least `1 - fraction`
            (Flow-Factory). The end itself is excluded in both.
        first: Whether step 0 is `drawn` like the others, is `always` one of the `count` times, or
            `never`.
    """

    from_schedule = True

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
        """The upper edge (excluded) of the last bin, for the schedule `times` `[n + 1]`."""
        sampled = times[:-1]
        if self.space == "index":
            return int(len(sampled) * self.fraction)
        return int((sampled >= 1 - self.fraction - 1e-6).sum()) - 1

    def bounds(self, times: Tensor) -> Tensor:
        """Integer edges of nearly equal bins of steps, for the schedule `times` `[n + 1]`."""
        bins = self.count - int(self.first == "always")
        return torch.linspace(int(self.first != "drawn"), self.end(times), bins + 1).long()

    def require_steps(self, times: Tensor) -> None:
        """Raise ModelError if a bin is empty; the plan cannot know a model's noise levels."""
        if (self.bounds(times).diff() < 1).any():
            raise ModelError(
                f"times.fraction={self.fraction} of the {self.space} leaves too few of the"
                f" {len(times) - 1} sampled steps to draw times.count={self.count} from;"
                " lower the count or raise the fraction"
            )

    def draw(self, uniform: Tensor, times: Tensor) -> Tensor:
        """Times `[B, T]` of the steps that are drawn, falling."""
        bounds = self.bounds(times)
        # one of each bin, upper edges excluded
        steps = bounds[:-1] + (uniform[:, : len(bounds) - 1] * bounds.diff()).long()
        if self.first == "always":
            steps = torch.cat([steps.new_zeros(len(steps), 1), steps], dim=1)
        return times[steps]


class RolloutTimes(Times):
    """`count` distinct times of the sampling schedule, at random (DiffusionNFT: all but one)."""

    from_schedule = True

    def __init__(self, *, count: PositiveInt = 9, shared: Shared = "sample") -> None:
        self.count = count
        self.shared: Shared = shared

    def draw(self, uniform: Tensor, times: Tensor) -> Tensor:
        """The first `count` swaps of a Fisher-Yates shuffle of the steps."""
        steps = len(times) - 1
        order = torch.arange(steps).repeat(len(uniform), 1)
        rows = torch.arange(len(uniform))
        for i in range(self.count):
            j = i + (uniform[:, i] * (steps - i)).long()
            at_i, at_j = order[:, i].clone(), order[rows, j]
            order[rows, j] = at_i
            order[:, i] = at_j
        return times[order[:, : self.count]]
