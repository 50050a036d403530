"""Advantages relative to the other samples of a prompt, or of the batch; of one reward or more."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from rlfactory.advantage.base import Advantage
from rlfactory.advantage.formulas import (
    ClipKind,
    EpsAs,
    Scope,
    StdScope,
    clipped,
    gdpo,
    group_advantages,
    weighted,
)
from rlfactory.advantage.statistics import constant
from rlfactory.rollout import Rollout
from rlfactory.types import Positive


class GroupAdvantage(Advantage):
    """`A = (r - mean) / (std + eps)`, clipped to `clip`, times `scale`.

    A group is a prompt's samples, or those of one of its steps where the rollout numbers `peers`.
    `weights` names the scores that train (null: the main one) and `aggregate` makes them one: `sum`
    adds the rewards, `advantages` adds the advantages of each (MixGRPO), `gdpo` normalises that sum
    over the batch again; gdpo is always by group with `eps` a floor, whatever `mean`, `std` and
    `eps_as` say. `zero_variance` is the lot of groups whose samples are all worth the same: kept;
    dropped, the loss staying a mean over all samples; or dropped and the mean renormalised.
    """

    grouped = True

    def __init__(
        self,
        *,
        mean: Literal["group", "global"] = "group",
        std: Literal["group", "global", "none"] = "group",
        unbiased: bool = False,
        eps: Positive = 1e-4,
        eps_as: Literal["added", "floor"] = "added",
        weights: dict[str, float] | None = None,
        aggregate: Literal["sum", "advantages", "gdpo"] = "sum",
        clip: Positive | None = 5.0,
        clip_kind: Literal["hard", "soft"] = "hard",
        scale: Positive = 1.0,
        zero_variance: Literal["keep", "drop", "renormalise"] = "keep",
    ) -> None:
        self.mean: Scope = mean
        self.std: StdScope = std
        self.unbiased, self.eps = unbiased, eps
        self.eps_as: EpsAs = eps_as
        self.weights, self.aggregate = weights, aggregate
        self.clip, self.scale = clip, scale
        self.clip_kind: ClipKind = clip_kind
        self.zero_variance = zero_variance

    def names(self, main: str) -> list[str]:
        """The scores with a weight other than 0."""
        return [*self._weights(main)]

    def __call__(self, rollout: Rollout, main: str) -> Rollout:
        """Advantages `[B]`, without the samples that `zero_variance` drops."""
        weights = self._weights(main)
        rewards = [rollout.rewards[name].double() for name in weights]
        groups = rollout.groups if rollout.peers is None else rollout.peers
        advantage = self._combined(rewards, [*weights.values()], groups).float()
        if self.clip is not None:
            advantage = clipped(advantage, self.clip, self.clip_kind)
        rollout = replace(rollout, advantage=self.scale * advantage)
        if self.zero_variance == "keep":
            return rollout
        return self._without(rollout, self._idle(rewards, [*weights.values()], groups))

    def _weights(self, main: str) -> Mapping[str, float]:
        named = {main: 1.0} if self.weights is None else self.weights
        return {name: weight for name, weight in named.items() if weight != 0}

    def _combined(self, rewards: list[Tensor], weights: list[float], groups: Tensor) -> Tensor:
        if self.aggregate == "gdpo":
            return gdpo(rewards, weights, groups, unbiased=self.unbiased, eps=self.eps)
        if self.aggregate == "sum":
            return self._normalised(weighted(rewards, weights), groups)
        return weighted([self._normalised(each, groups) for each in rewards], weights)

    def _normalised(self, rewards: Tensor, groups: Tensor) -> Tensor:
        return group_advantages(
            rewards,
            groups,
            mean=self.mean,
            std=self.std,
            unbiased=self.unbiased,
            eps=self.eps,
            eps_as=self.eps_as,
        )

    def _idle(self, rewards: list[Tensor], weights: list[float], groups: Tensor) -> Tensor:
        """Whose advantage is zero throughout the group, `[B]`, read off the rewards: advantages
        are rounded.
        """
        if self.mean == "global" and self.aggregate != "gdpo":
            return torch.zeros(len(groups), dtype=torch.bool)
        if self.aggregate == "sum":
            return constant(weighted(rewards, weights), groups)
        return torch.stack([constant(each, groups) for each in rewards]).all(0)

    def _without(self, rollout: Rollout, idle: Tensor) -> Rollout:
        if not idle.any():
            return rollout
        kept = rollout[(~idle).nonzero().flatten()]
        if self.zero_variance == "renormalise":
            return kept
        return replace(kept, weight=len(kept) / len(rollout))
