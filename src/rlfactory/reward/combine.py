"""Composite reward: a weighted sum of rewards, with normalisation, gates and clipping."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor

from rlfactory.algo.advantage.formulas import group_advantages, weighted_sum
from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import (
    Direction,
    Metadata,
    Reward,
    RewardError,
    Samples,
    declared_better,
    score_checked,
)
from rlfactory.utils.types import Faults, Media

log = logging.getLogger(__name__)

COMBINED = "combined"
Normalise = Literal["none", "group"]
_EPS = 1e-6
_OPPOSITE: Mapping[Direction, Direction] = {"higher": "lower", "lower": "higher"}


@final
class Combine(Reward):
    """`combined`: `sum_k w_k r_k`; and the scores of all parts.

    `r_k` is the main score of a part, reported under the part's name. It is clipped to `clips[k]`
    (lower, upper; null for no bound), then set to 0 where a score named in `gates[k]` is below its
    threshold; the result is reported as `<part>_counted` where either is set. A weight is 1 unless
    `weights` has another; parts of weight 0 are reported only. Where any other part is NaN, so is
    the sum; with `missing="skip"` it is the sum of the others, NaN where there are none.

    `normalise`, one for all parts or by part, is applied to `r_k` before the weighted sum that
    trains: nothing, or `(r - mean) / max(std, 1e-6)` within the group. What is reported and
    evaluated is the sum without it. With `aggregate="gdpo"` the advantage combines the parts'
    scores by their weights instead (GDPO).
    """

    main = COMBINED
    made_of = "parts"

    def __init__(
        self,
        *,
        of: list[str],
        parts: Mapping[str, Reward],
        weights: dict[str, float] | None = None,
        normalise: Normalise | dict[str, Normalise] = "none",
        aggregate: Literal["sum", "gdpo"] = "sum",
        gates: dict[str, dict[str, float]] | None = None,
        clips: dict[str, list[float | None]] | None = None,
        missing: Literal["fail", "skip"] = "fail",
    ) -> None:
        """
        Args:
            of: Names from `rlfactory list reward`, or of your own parts.
            parts: Their options, reward.parts.NAME.OPTION.
            weights: By part, 1 by default; 0: reported only.
            normalise: none | group: for all parts, or by part: {NAME: group}.
            aggregate: sum | gdpo: the advantage combines the parts' scores (advantage=gdpo).
            gates: {NAME: {OTHER: 0.5}}: NAME counts only where OTHER reaches 0.5, else it is 0.
            clips: {NAME: [lower, upper]}, null for no bound.
            missing: fail | skip: a sample that a part has no score of has none | the sum of the
                other parts, as in TRL, where a function returns None for rows of other tasks.
        """
        self.parts = {name: parts[name] for name in of}
        self.weights = dict.fromkeys(self.parts, 1.0) | (weights or {})
        self.gates, self.clips = gates or {}, clips or {}
        by_part = normalise if isinstance(normalise, dict) else dict.fromkeys(self.parts, normalise)
        self.normalisation = dict.fromkeys(self.parts, "none") | by_part
        self.aggregate, self.missing = aggregate, missing
        given: dict[str, Any] = {"of": of, "weights": weights, "gates": gates, "clips": clips}
        given |= {"normalise": normalise, "aggregate": aggregate, "missing": missing}
        for place, message, _ in self.validate(given, {}):
            raise RewardError(f"reward.{place}: {message}")
        self.media = _media(self.parts)  # type: ignore[misc]
        self.metadata = tuple(  # type: ignore[misc]
            dict.fromkeys(key for part in self.parts.values() for key in part.metadata)
        )
        self.best_score = self._best_score()  # type: ignore[misc]
        subtracted = {name for name, weight in self.weights.items() if weight < 0}
        self.better = merge_directions(  # type: ignore[misc]
            self.parts, {COMBINED: "higher"}, subtracted
        )

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """Options name parts that there are; some part has a weight; a clip is an interval."""
        from rlfactory.config.problems import closest

        names = options["of"]
        for option in ("weights", "gates", "clips", "normalise"):
            given = options[option] if isinstance(options[option], dict) else {}
            keys = [(option, name) for name in given]
            for name, others in given.items():
                if isinstance(others, dict):
                    keys += [(f"{option}.{name}", other) for other in others]
            for place, name in keys:
                if name not in names:
                    guess = closest(name, names)
                    meant = f". Did you mean {guess}?" if guess else ""
                    message = f"reward.of names no {name}; it names {', '.join(names)}{meant}"
                    yield f"{place}.{name}", message, f"reward.{place}.{guess}" if guess else ""
        if options["missing"] == "skip" and options["aggregate"] == "gdpo":
            yield "missing", "skips parts of a sum, and gdpo takes none", "reward.missing=fail"
        weights = options["weights"] or {}
        if names and all(weights.get(name, 1) == 0 for name in names):
            message = "gives no part a weight other than 0, so nothing would be trained"
            yield "weights", message, f"reward.weights.{names[0]}=1"
        for name, bounds in (options["clips"] or {}).items():
            numbers = [bound for bound in bounds if bound is not None]
            if len(bounds) != 2 or not numbers or numbers != sorted(numbers):
                message = f"is {bounds}; allowed is [lower, upper], null for one of them"
                yield f"clips.{name}", message, f"reward.clips.{name}=[0,1]"

    @property
    def counting(self) -> list[str]:
        """The parts with a weight other than 0."""
        return [name for name in self.parts if self.weights[name] != 0]

    @property
    def score_weights(self) -> Mapping[str, float] | None:
        """With GDPO, the weights of the parts' scores by the names they are reported by."""
        if self.aggregate == "sum":
            return None
        return {self._name(part): self.weights[part] for part in self.counting}

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """The plain sum, and the scores of each part, `[B]`."""
        part_scores = {name: score_checked(part, samples) for name, part in self.parts.items()}
        scores = merge_scores(self.parts, part_scores, {})
        values = {part: self._counted(part, scores) for part in self.parts}
        combined = self._sum(values)
        for part in self.counting if self.missing == "fail" else ():
            if unscored := int(scores[part].isnan().sum()):
                log.error(
                    "%s has no score of %d of %d samples; reward.missing=skip sums the others",
                    *(part, unscored, len(scores[part])),
                )
        counted = {self._name(p): v for p, v in values.items() if self._name(p) != p}
        # named twice: first in order, and not replaced by a part's score of that name
        return {COMBINED: combined} | scores | counted | {COMBINED: combined}

    def score_pixels(self, pixels: Tensor, prompts: Sequence[str], metadata: Metadata) -> Tensor:
        """The plain sum; a closed gate has no gradient."""
        counting = self.counting
        read = dict.fromkeys([*counting, *(g for p in counting for g in self.gates.get(p, {}))])
        scores = {n: self.parts[n].score_pixels(pixels, prompts, metadata) for n in read}
        return self._sum({part: self._counted(part, scores) for part in counting})

    def normalise(self, scores: Mapping[str, Tensor], groups: Tensor) -> Mapping[str, Tensor]:
        """The scores, with the weighted sum of the normalised parts as `combined`."""
        if self.aggregate == "gdpo" or all(self.normalisation[p] == "none" for p in self.counting):
            return scores
        values = {p: self._normalised(p, scores[self._name(p)], groups) for p in self.counting}
        return {**scores, COMBINED: self._sum(values)}

    def _sum(self, values: Mapping[str, Tensor]) -> Tensor:
        terms = [values[part] for part in self.counting]
        weights = [self.weights[part] for part in self.counting]
        if self.missing == "fail":
            return weighted_sum(terms, weights)
        unscored = torch.stack(terms).isnan()
        known = [term.masked_fill(term.isnan(), 0.0) for term in terms]
        return weighted_sum(known, weights).masked_fill(unscored.all(0), torch.nan)

    def _name(self, part: str) -> str:
        """The name of a part's score after clips and gates."""
        return f"{part}_counted" if part in self.gates or part in self.clips else part

    def _counted(self, part: str, scores: Mapping[str, Tensor]) -> Tensor:
        """A part's score `[B]`, clipped, and 0 where a gate is closed; NaN where either is NaN."""
        value = scores[part]
        if part in self.clips:
            value = value.clamp(*self.clips[part])
        for other, threshold in self.gates.get(part, {}).items():
            gate = scores[other]
            value = torch.where(gate >= threshold, value, value * 0)  # NaN * 0 stays NaN
            value = value.masked_fill(gate.isnan(), torch.nan)
        return value

    def _normalised(self, part: str, values: Tensor, groups: Tensor) -> Tensor:
        known = values.isfinite()
        normalised = torch.full_like(values, torch.nan)
        if self.normalisation[part] == "none" or not known.any():
            return values
        normalised[known] = group_advantages(values[known], groups[known], eps=_EPS, eps_as="floor")
        return normalised

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        # an iterator would be used up by the first part
        listed = prompts if isinstance(prompts, Sequence) else [*prompts]
        for part in self.parts.values():
            part.check_prompts(listed)

    def _best_score(self) -> float | None:
        """The sum for a perfect sample, if all parts with a weight score it and have a best one."""
        known = all(self.parts[part].best_score is not None for part in self.counting)
        if self.clips or self.missing == "skip" or not known:
            return None
        return sum(self.weights[p] * (self.parts[p].best_score or 0.0) for p in self.counting)


def merge_directions(
    parts: Mapping[str, Reward], existing: Mapping[str, Direction], subtracted: Collection[str] = ()
) -> dict[str, Direction]:
    """The better direction of each score that `merge_scores` names, as far as the rewards say it.

    Of the parts in `subtracted` it is the opposite of what they say.
    """
    merged: dict[str, Direction] = {**existing, **dict.fromkeys(parts, "higher")}
    for name, part in parts.items():
        own: dict[str, Direction] = {
            f"{name}_{score}" if score in merged else score: direction
            for score, direction in declared_better(part).items()
        }
        merged |= own
        if name in subtracted:
            merged |= {score: _OPPOSITE[merged[score]] for score in (name, *own)}
    return merged


def merge_scores(
    parts: Mapping[str, Reward],
    part_scores: Mapping[str, Mapping[str, Tensor]],
    existing: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The `existing` scores, and those of the parts by name: the main one of each under the part's
    name, the others under their own, or as `<part>_<score>` where that name is taken.
    """
    scores = dict(existing)
    for name, part in parts.items():
        scores[name] = part_scores[name][part.main]
    for name, part in parts.items():
        for score, values in part_scores[name].items():
            if score != part.main:
                scores[f"{name}_{score}" if score in scores else score] = values
    return scores


def _media(parts: Mapping[str, Reward]) -> Media:
    media = {part.media for part in parts.values()}
    if len(media) != 1:
        kinds = ", ".join(f"{name} scores {part.media}" for name, part in parts.items())
        raise RewardError(
            f"reward.of: all parts must score images, videos or texts; {kinds or 'there are none'}"
        )
    return media.pop()
