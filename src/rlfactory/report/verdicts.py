"""From estimated differences to verdicts: one-sided p values, Holm's correction, three words.

A claim and its contrary each have a one-sided p value, by Student's t with one degree of freedom
less than seeds. A verdict is given where twice the smaller one, corrected for all claims of a page,
is at most 5 %: then the claim holds (`agree`) or its contrary does (`disagree`).

Standard errors are by a hierarchical bootstrap: seeds are resampled, and prompts within them. Where
all seeds were evaluated on the same prompts, these are resampled once for all seeds, so that what a
prompt has in common between seeds counts as well (Owen, "The Pigeonhole Bootstrap", 2007).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rlfactory.report.statistics import CONFIDENCE, RESAMPLES, Array, Interval, t_quantile

_ROUNDING = 1e-12  # an error this much smaller than the numbers is none


@dataclass(frozen=True)
class SeedScores:
    """The scores `[N]` of a seed's evaluation, one a prompt; NaN where it could not be scored.

    A number that is not a mean over prompts, as of a training metric, is one value with no prompt.
    """

    prompts: tuple[str, ...]
    values: Array


@dataclass(frozen=True)
class MeanDifference:
    """A mean difference over `seeds` seeds of at least `prompts` prompts, and its standard error.

    Of values that belong to no prompt, `prompts` is their number. The error is NaN below two seeds,
    and the value below one.
    """

    value: float
    error: float
    seeds: int
    prompts: int


def constant(value: float, like: Mapping[int, SeedScores]) -> dict[int, SeedScores]:
    """The scores of a number that is known exactly, for the same seeds."""
    return {seed: SeedScores((), np.array([value])) for seed in like}


def difference(
    first: Mapping[int, SeedScores],
    second: Mapping[int, SeedScores],
    *,
    resamples: int = RESAMPLES,
) -> MeanDifference:
    """Estimate the mean of `first - second` over the seeds that both have.

    Seeds are paired, and so are prompts where both were evaluated on the same ones in every seed.
    """
    pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    sides = [[x for x, _ in pairs], [y for _, y in pairs]]
    if all(x.prompts == y.prompts for x, y in pairs):
        sides = [[SeedScores(x.prompts, x.values - y.values) for x, y in pairs]]
    scored = [_scored(side) for side in sides]
    kept = [i for i in range(len(pairs)) if all(len(side[i]) for side in scored)]
    if not kept:
        return MeanDifference(float("nan"), float("nan"), 0, 0)
    scored = [[side[i] for i in kept] for side in scored]
    signs = (1.0, -1.0)[: len(sides)]
    value = float(np.dot(signs, [np.mean([own.mean() for own in side]) for side in scored]))
    # a constant is one value of no prompt, beside scores of prompts
    of_prompts = [s for s, side in zip(scored, sides, strict=True) if any(x.prompts for x in side)]
    fewest = min(len(v) for side in of_prompts or scored for v in side)
    if len(kept) < 2:
        return MeanDifference(value, float("nan"), len(kept), fewest)
    rng = np.random.default_rng(0)
    slots = rng.integers(len(kept), size=(resamples, len(kept)))
    drawn = np.zeros(resamples)
    for sign, values, side in zip(signs, scored, sides, strict=True):
        drawn += sign * _resampled(values, _is_shared(side), slots, rng)
    # without the bootstrap's bias: the variance of n draws lacks 1 / n
    error = float(np.std(drawn, ddof=1)) * float(np.sqrt(len(kept) / (len(kept) - 1)))
    size = max(float(np.abs(v).max()) for side in scored for v in side)
    return MeanDifference(value, 0.0 if error <= _ROUNDING * size else error, len(kept), fewest)


def paired_difference(first: Mapping[int, float], second: Mapping[int, float]) -> MeanDifference:
    """The mean of `first - second`, one number each, over the seeds that both have."""
    values = np.array([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])
    count = len(values)
    error = float(values.std(ddof=1) / np.sqrt(count)) if count > 1 else float("nan")
    return MeanDifference(float(values.mean()) if count else float("nan"), error, count, 1)


def _is_shared(side: Sequence[SeedScores]) -> bool:
    return len({scores.prompts for scores in side}) == 1


def _scored(side: Sequence[SeedScores]) -> list[Array]:
    """Each seed's values without NaN; a prompt that all seeds share is left out of all of them."""
    if _is_shared(side) and len({len(scores.values) for scores in side}) == 1:
        matrix = np.stack([scores.values for scores in side])
        return [*matrix[:, ~np.isnan(matrix).any(0)]]
    return [scores.values[~np.isnan(scores.values)] for scores in side]


def _resampled(
    values: Sequence[Array], shared: bool, slots: NDArray[np.int64], rng: np.random.Generator
) -> Array:
    """The means `[R]` of resamples whose seeds are `slots`, `[R, seeds]`."""
    total: Array = np.zeros(len(slots), dtype=np.float64)
    count = slots.shape[1]
    if shared:
        matrix, length = np.stack(values), len(values[0])
        prompts = rng.integers(length, size=(len(slots), length))
        for chosen in slots.T:
            total += matrix[chosen[:, None], prompts].mean(1) / count
        return total
    for chosen in slots.T:
        for number, own in enumerate(values):
            rows = np.flatnonzero(chosen == number)
            total[rows] += own[rng.integers(len(own), size=(len(rows), len(own)))].mean(1) / count
    return total


Verdict = Literal["agree", "disagree", "undecided"]
MIN_SEEDS = 5
"""Seeds below which a claim is undecided, whatever its numbers are."""


@dataclass(frozen=True)
class Evidence:
    """The one-sided p values of a claim (small: it holds) and of its contrary."""

    claim: float
    contrary: float

    @property
    def p(self) -> float:
        """The p value of a verdict in either direction."""
        return min(1.0, 2 * min(self.claim, self.contrary))


def interval(estimate: MeanDifference) -> Interval:
    """The interval of a difference; None below two seeds."""
    if estimate.seeds < 2:
        return None
    reach = t_quantile(estimate.seeds - 1) * estimate.error
    return estimate.value - reach, estimate.value + reach


def tails(estimate: MeanDifference, bound: float) -> tuple[float, float]:
    """The one-sided p values that the difference is above a bound, and that it is below."""
    # scipy.stats takes seconds to import
    from scipy.special import stdtr

    distance = estimate.value - bound
    if estimate.error == 0:
        return float(distance <= 0), float(distance >= 0)
    t = distance / estimate.error
    return float(stdtr(estimate.seeds - 1, -t)), float(stdtr(estimate.seeds - 1, t))


def greater(estimate: MeanDifference, margin: float = 0.0) -> Evidence:
    """Evidence on the claim that the difference is above `-margin`: with one, not inferior."""
    return Evidence(*tails(estimate, -margin))


def less(estimate: MeanDifference, margin: float = 0.0) -> Evidence:
    """Evidence on the claim that the difference is below `margin`."""
    above, below = tails(estimate, margin)
    return Evidence(below, above)


def equal(estimate: MeanDifference, margin: float) -> Evidence:
    """Evidence on the claim that the difference is within the margin, by two one-sided tests."""
    above_low, below_low = tails(estimate, -margin)
    above_high, below_high = tails(estimate, margin)
    return Evidence(max(above_low, below_high), min(above_high, below_low))


def all_of(parts: Sequence[Evidence]) -> Evidence:
    """Evidence on a claim that holds if all of its parts do, and fails if one does."""
    contrary = min(1.0, len(parts) * min(part.contrary for part in parts))
    return Evidence(max(part.claim for part in parts), contrary)


def holm(p: Sequence[float]) -> list[float]:
    """P values adjusted by Holm's step-down, which holds the chance of any false verdict."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = largest
    return adjusted


def verdict(evidence: Evidence, adjusted: float) -> Verdict:
    """The verdict on a claim whose p value is `adjusted` for the others of its page."""
    if math.isnan(adjusted) or adjusted > 1 - CONFIDENCE:
        return "undecided"
    return "agree" if evidence.claim < evidence.contrary else "disagree"
