"""GARDO (arXiv 2512.24138): a KL penalty on the samples whose scores are doubtful, towards a
reference that follows the policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from rlfactory.regularizer.base import KL, WeightSet
from rlfactory.regularizer.coefficient import Coefficient
from rlfactory.regularizer.kl_v import KLVelocity
from rlfactory.rollout import Rollout
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.types import Faults, Fraction, Positive, PositiveInt

WINDOW = 20
"""Iterations that an iteration's doubt is compared with."""


def doubt(scores: Tensor, others: Sequence[Tensor]) -> Tensor:
    """How much higher samples rank by their score `[B]` than by other scores, each `[B]`, on the
    average: `[B]` in -1 to 1.
    """
    ranks = [values.argsort(stable=True).argsort().double() for values in (scores, *others)]
    return (ranks[0] - torch.stack(ranks[1:]).mean(0)) / len(scores)


def gated(doubts: Tensor, share: float) -> Tensor:
    """Whether a doubt is above 0, and among the `share` highest of those from 0 on."""
    doubtful = doubts[doubts >= 0]
    if not len(doubtful):
        return torch.zeros_like(doubts, dtype=torch.bool)
    # at least the limit: of a single doubtful sample that is its own doubt
    return (doubts >= torch.quantile(doubtful, 1 - share)) & (doubts > 0)


@final
class Gate(Coefficient):
    """The share of samples that are penalised, and when the reference was last reset.

    The share grows by a tenth where the mean doubt is above those of the last iterations, and
    shrinks by a tenth where it is below, within `low` and `high`.
    """

    def __init__(self, share: float, low: float, high: float) -> None:
        super().__init__(share)
        self.low, self.high = low, high
        self.window: list[float] = []
        self.since, self.is_far = 0, False

    def observe(self, mean: float) -> None:
        """Adapt to the mean doubt of an iteration's doubtful samples."""
        if self.window and mean > max(self.window):
            self._value *= 1.1
        elif self.window and mean < min(self.window):
            self._value *= 0.9
        self._value = min(max(self._value, self.low), self.high)
        self.window = [*self.window, mean][-WINDOW:]

    def update(self, kl_per_token: float, kl_per_sequence: float, samples: int) -> None:
        """Nothing changes by an update's divergence."""

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, **{k: vars(self)[k] for k in ("window", "since", "is_far")}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.window, self.since = list(state["window"]), int(state["since"])
        self.is_far = bool(state["is_far"])


class Gardo(KLVelocity):
    """`coefficient mean (v - v_ref)^2` over the gated samples. With R the rank of a sample among
    those of the iteration, divided by their number,

        doubt = R(score) - mean over others of R(other score);

    gated are the `share` most doubtful of the samples with a doubt of 0 or more. The reference
    becomes the policy after an iteration in which an update's divergence was above `threshold`,
    and after `every` iterations at the latest.

    Args:
        others: Names of the scores that doubt is measured by, as reported; weight 0 keeps a part
            of a combined reward out of training.
        gate: `over`: doubt as above, of samples that the trained score puts too high, as a hacked
            one does. `under`: its negative, which the published code has, as it gives the highest
            score the rank 1.
        over: What the divergence is a mean over: the `gated` samples (published code), or `all`.
        share: Initial share of the doubtful samples that are gated.
        least: Lower bound of the share.
        most: Upper bound of the share.
        threshold: Divergence above which the reference becomes the policy; null: never.
        every: Iterations after which it becomes the policy; null: never. Published: 15.
    """

    moves_reference: ClassVar[bool] = True
    reference: WeightSet | None = "reference"

    def __init__(
        self,
        *,
        coefficient: Coefficient,
        others: list[str] | None = None,
        gate: Literal["over", "under"] = "over",
        over: Literal["gated", "all"] = "gated",
        share: Fraction = 0.1,
        least: Fraction = 0.02,
        most: Fraction = 0.2,
        threshold: Positive | None = None,
        every: PositiveInt | None = 15,
    ) -> None:
        super().__init__(coefficient=coefficient)
        self.others, self.gate, self.over = list(others or []), gate, over
        self.share = Gate(share, least, most)
        self.threshold, self.every = threshold, every

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """There are scores to compare with, and evaluations do not end with the first model."""
        if not options["others"]:
            yield "others", "is empty; allowed are names of further scores of the reward", ""
        if run["evaluation"]["policy_fraction"] < 1:
            message = "ends evaluations with the reference, which follows the policy here"
            yield "evaluation.policy_fraction", message, "evaluation.policy_fraction=1"

    def weigh(self, everyone: Rollout, main: str) -> Rollout:
        """The samples with their part in the penalty, 0 where it is gated off."""
        names = [main, *self.others]
        if missing := [name for name in names if name not in everyone.rewards]:
            known = ", ".join(everyone.rewards)
            raise TrainingError(
                f"regularizer.others has {missing[0]!r}; the reward's scores are {known}"
            )
        score, *others = (everyone.rewards[name].cpu() for name in names)
        doubts = doubt(score, others) if self.gate == "over" else -doubt(score, others)
        # a score that is not known is sorted behind all others, and tells of no doubt
        doubts[torch.stack(others).isnan().any(0)] = torch.nan
        if len(doubtful := doubts[doubts >= 0]):
            self.share.observe(float(doubtful.mean()))
        weight = gated(doubts, self.share.value).float()
        if self.over == "gated":
            weight = weight / weight.mean().clamp(min=1 / max(1, len(weight)))
        return replace(everyone, penalty_weight=weight)

    @property
    def coefficients(self) -> dict[str, Coefficient]:
        return {**super().coefficients, "kl/gated": self.share}

    def update_coefficients(
        self, moment: str, metrics: Mapping[str, float], length: float, samples: int
    ) -> None:
        """Also note whether an update was far from the reference."""
        super().update_coefficients(moment, metrics, length, samples)
        if moment == "step" and self.threshold is not None:
            self.share.is_far |= metrics.get(KL, 0.0) > self.threshold

    def take_reset(self) -> bool:
        gate = self.share
        gate.since += 1
        is_due = gate.is_far or (self.every is not None and gate.since >= self.every)
        if is_due:
            gate.since, gate.is_far = 0, False
        return is_due
