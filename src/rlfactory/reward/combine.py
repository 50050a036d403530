"""A reward made of rewards: weighed, normalised, gated and clipped."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, final

import torch
from torch import Tensor

from rlfactory.advantage.formulas import group_advantages, weighted
from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, RewardError, Samples, judge
from rlfactory.reward.running import Running

COMBINED = "combined"
Normalise = Literal["none", "group", "running"]
_EPS = 1e-6


@final
class Combine(Reward):
    """`combined`: `sum_k w_k r_k`, beside the scores of all parts.

    `r_k` is the main score of a part, reported by the part's name. It is clipped to `clips[k]`
    (lower, upper; null is none), then 0 where a score that `gates[k]` names is below what is asked
    of it; the result is reported as `<part>_counted` where either is set. A weight is 1 unless
    `weights` says otherwise; a part with a weight of 0 is only watched. Where a part that counts
    has no score, nor has the sum.

    `normalise`, of all or of each, is what is done to `r_k` before an iteration's are weighed:
    nothing, `(r - mean) / max(std, 1e-6)` within the group, or by the statistics of all iterations
    so far. What is reported and evaluated is the plain sum. With `aggregate="gdpo"` nothing is
    summed here: the advantage takes every part's score with its weight (GDPO).
    """

    main = COMBINED
    made_of = "parts"

    def __init__(
        self,
        *,
        of: list[str],
        parts: Mapping[str, Reward],
        weights: dict[str, float] | None = None,
        normalise: Literal["none", "group", "running"]
        | dict[str, Literal["none", "group", "running"]] = "none",
        aggregate: Literal["sum", "gdpo"] = "sum",
        gates: dict[str, dict[str, float]] | None = None,
        clips: dict[str, list[float | None]] | None = None,
    ) -> None:
        self.parts = {name: parts[name] for name in of}
        self.weights = dict.fromkeys(self.parts, 1.0) | (weights or {})
        self.gates, self.clips = gates or {}, clips or {}
        self.normalise = _of_each(self.parts, normalise)
        self.aggregate = aggregate
        for key in ("weights", "gates", "clips", "normalise"):
            _require_known(key, getattr(self, key), self.parts)
        self.media = _media(self.parts)  # type: ignore[misc]
        self.metadata = tuple(  # type: ignore[misc]
            dict.fromkeys(key for part in self.parts.values() for key in part.metadata)
        )
        self.good = self._good()  # type: ignore[misc]
        self._running = {n: Running() for n, how in self.normalise.items() if how == "running"}

    @property
    def counting(self) -> list[str]:
        """The parts with a weight other than 0."""
        return [name for name in self.parts if self.weights[name] != 0]

    @property
    def trains(self) -> Mapping[str, float] | None:
        """With GDPO, the weights of the parts' scores by the names they are reported by."""
        if self.aggregate == "sum":
            return None
        return {self._name(part): self.weights[part] for part in self.counting}

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """The plain sum, and the scores of each part, `[B]`."""
        given = {name: judge(part, samples) for name, part in self.parts.items()}
        scores = together(self.parts, given, {})
        values = {part: self._counted(part, scores) for part in self.parts}
        summed = self._sum(values)
        counted = {self._name(p): v for p, v in values.items() if self._name(p) != p}
        return {COMBINED: summed} | scores | counted | {COMBINED: summed}

    def normalised(self, scores: Mapping[str, Tensor], groups: Tensor) -> Mapping[str, Tensor]:
        """The scores with the sum of the normalised parts as `combined`."""
        if self.aggregate == "gdpo" or all(self.normalise[p] == "none" for p in self.counting):
            return scores
        values = {p: self._normalised(p, scores[self._name(p)], groups) for p in self.counting}
        return {**scores, COMBINED: self._sum(values)}

    def _sum(self, values: Mapping[str, Tensor]) -> Tensor:
        counting = self.counting
        return weighted([values[p] for p in counting], [self.weights[p] for p in counting])

    def _name(self, part: str) -> str:
        """What the score that counts is reported by."""
        return f"{part}_counted" if part in self.gates or part in self.clips else part

    def _counted(self, part: str, scores: Mapping[str, Tensor]) -> Tensor:
        """A part's score, clipped, and 0 behind a closed gate; NaN where either is not known."""
        value = scores[part]
        if part in self.clips:
            value = value.clamp(*self.clips[part])
        for other, threshold in self.gates.get(part, {}).items():
            gate = scores[other]
            value = torch.where(gate >= threshold, value, value * 0)
            value = value.masked_fill(gate.isnan(), torch.nan)
        return value

    def _normalised(self, part: str, values: Tensor, groups: Tensor) -> Tensor:
        known = values.isfinite()
        moved = torch.full_like(values, torch.nan)
        if self.normalise[part] == "none" or not known.any():
            return values
        if part in self._running:
            moved[known] = self._running[part].normalised(values[known], _EPS)
        else:
            moved[known] = group_advantages(values[known], groups[known], eps=_EPS, eps_as="floor")
        return moved

    def require(self, prompts: Iterable[Prompt]) -> None:
        """What each part requires."""
        known = list(prompts)
        for part in self.parts.values():
            part.require(known)

    def _good(self) -> float | None:
        """What a faultless sample gets, where all parts that count know it."""
        if self.clips or any(self.parts[part].good is None for part in self.counting):
            return None
        return sum(self.weights[p] * (self.parts[p].good or 0.0) for p in self.counting)

    def state_dict(self) -> dict[str, Any]:
        """The running statistics of each part that has them."""
        return {name: running.state_dict() for name, running in self._running.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from them; a part that is new since then begins its own."""
        for name, running in self._running.items():
            if name in state:
                running.load_state_dict(state[name])


def together(
    parts: Mapping[str, Reward],
    given: Mapping[str, Mapping[str, Tensor]],
    found: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The scores of several rewards beside those that were `found` already.

    The main one of each goes by its part's name, the others by their own, or as `<part>_<score>`
    where there is one of that name.
    """
    scores = dict(found)
    for name, part in parts.items():
        scores[name] = given[name][part.main]
    for name, part in parts.items():
        for score, values in given[name].items():
            if score != part.main:
                scores[f"{name}_{score}" if score in scores else score] = values
    return scores


def _of_each(
    parts: Mapping[str, Reward], said: Normalise | dict[str, Normalise]
) -> dict[str, Normalise]:
    """What is said of all parts, or of some of them by name and none of the others."""
    if isinstance(said, dict):
        nothing: dict[str, Normalise] = dict.fromkeys(parts, "none")
        return nothing | said
    return dict.fromkeys(parts, said)


def _require_known(key: str, given: Mapping[str, object], parts: Mapping[str, Reward]) -> None:
    unknown = [name for name in _names(given) if name not in parts]
    if unknown:
        raise RewardError(
            f"reward.{key} names {', '.join(unknown)}; the parts are {', '.join(parts)}"
        )


def _names(given: Mapping[str, object]) -> Iterator[str]:
    """The parts that an option names: its keys, and of gates those that they go by."""
    for name, value in given.items():
        yield name
        if isinstance(value, Mapping):
            yield from value


def _media(parts: Mapping[str, Reward]) -> Literal["images", "texts"]:
    media = {part.media for part in parts.values()}
    if len(media) != 1:
        told = ", ".join(f"{name} judges {part.media}" for name, part in parts.items())
        raise RewardError(f"reward.of: parts judge the same kind of samples; {told or 'none'}")
    return media.pop()
