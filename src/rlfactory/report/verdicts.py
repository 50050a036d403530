"""From estimated differences to verdicts: one-sided p values, Holm's correction, three words.

A claim and its contrary each have a one-sided p value, by Student's t with one degree of freedom
less than seeds. A verdict is given where twice the smaller one, corrected for all claims of a page,
is at most 5 %: then the claim holds (`agree`) or its contrary does (`disagree`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlfactory.report.hierarchical import MeanDifference
from rlfactory.report.statistics import Interval, t_quantile

Verdict = Literal["agree", "disagree", "undecided"]
MIN_SEEDS = 5
"""Seeds below which a claim is undecided, whatever its numbers are."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Evidence:
    """The one-sided p values of a claim (small: it holds) and of its contrary."""

    claim: float
    contrary: float

    @property
    def p(self) -> float:
        """The p value of a verdict in either direction."""
        return min(1.0, 2 * min(self.claim, self.contrary))


def interval(estimate: MeanDifference, confidence: float = CONFIDENCE) -> Interval:
    """The interval of a difference; None below two seeds."""
    if estimate.seeds < 2:
        return None
    reach = t_quantile(estimate.seeds - 1, confidence) * estimate.error
    return estimate.value - reach, estimate.value + reach


def above(estimate: MeanDifference, bound: float) -> float:
    """The one-sided p value that the difference is above a bound."""
    # scipy.stats takes seconds to import
    from scipy.special import stdtr

    distance = estimate.value - bound
    if estimate.error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(stdtr(estimate.seeds - 1, -distance / estimate.error))


def below(estimate: MeanDifference, bound: float) -> float:
    """The one-sided p value that the difference is below a bound."""
    mirrored = MeanDifference(-estimate.value, estimate.error, estimate.seeds, estimate.prompts)
    return above(mirrored, -bound)


def greater(estimate: MeanDifference, margin: float = 0.0) -> Evidence:
    """Evidence on the claim that the difference is above `-margin`: with one, not inferior."""
    return Evidence(above(estimate, -margin), below(estimate, -margin))


def less(estimate: MeanDifference, margin: float = 0.0) -> Evidence:
    """Evidence on the claim that the difference is below `margin`."""
    return Evidence(below(estimate, margin), above(estimate, margin))


def equal(estimate: MeanDifference, margin: float) -> Evidence:
    """Evidence on the claim that the difference is within the margin, by two one-sided tests."""
    within = max(above(estimate, -margin), below(estimate, margin))
    beyond = min(above(estimate, margin), below(estimate, -margin))
    return Evidence(within, beyond)


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
