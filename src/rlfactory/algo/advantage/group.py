"""Group-relative advantages (GRPO) of one reward or several, with GDPO and MixGRPO's sum."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.algo.advantage.base import Advantage
from rlfactory.algo.advantage.formulas import (
    ClipKind,
    Scope,
    StdScope,
    clip_advantages,
    gdpo,
    group_advantages,
    is_constant_group,
    weighted_sum,
)
from rlfactory.rollout import Rollout
from rlfactory.utils.types import Faults, Positive


class GroupAdvantage(Advantage):
    """`A = scale clip((r - mean) / (std + eps))`; see `formulas.group_advantages`.

    A group is the samples of one prompt, or those of `rollout.comparison_group` where it is set
    (branching at each step).

    Args:
        mean: Whether the mean is that of the group or of the batch.
        std: Whether the std is that of the group, of the batch, or left out.
        unbiased: Whether the variance is divided by n - 1.
        eps: Added to the std, or its lower bound, as `eps_as` says.
        weights: Weight of each score that trains; None: the main score alone.
        aggregate: `sum` adds the weighted rewards; `advantages` adds the weighted advantages of
            each reward (MixGRPO); `gdpo` normalises that sum over the batch again, always by group
            first and with `eps` as a floor, whatever `mean`, `std` and `eps_as` are.
        clip: Limit of the advantage's magnitude; None: not clipped.
        clip_kind: Hard clamp or soft tanh.
        scale: Factor on the clipped advantage.
        zero_variance: What is done with groups whose samples all have the same reward: `keep`;
            `drop`, where the loss stays a mean over all samples; `renormalise`, where it is the
            mean over the remaining ones.
        eps_as: added | floor: std + eps, or max(std, eps).
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
        self.weights, self.aggregate = weights, aggregate
        self.clip, self.scale = clip, scale
        self.clip_kind: ClipKind = clip_kind
        self.zero_variance = zero_variance
        self._normalise = partial(
            group_advantages, mean=mean, std=std, unbiased=unbiased, eps=eps, eps_as=eps_as
        )

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """At least one weight is not 0."""
        weights = options["weights"]
        if weights is not None and not any(weights.values()):
            message = "gives no score a weight other than 0, so nothing would be trained"
            yield "weights", message, "advantage.weights=null"

    def names(self, main: str) -> list[str]:
        """The scores whose weight is not 0."""
        return [*self._weights(main)]

    def __call__(self, rollout: Rollout, main: str) -> Rollout:
        """Advantages `[B]`, without the samples that `zero_variance` drops."""
        weights = self._weights(main)
        # float64: rewards of a group may differ in their last digits only
        rewards = [rollout.rewards[name].double() for name in weights]
        groups = rollout.groups if rollout.comparison_group is None else rollout.comparison_group
        advantage = self._aggregate(rewards, [*weights.values()], groups).float()
        if self.clip is not None:
            advantage = clip_advantages(advantage, self.clip, self.clip_kind)
        rollout = replace(rollout, advantage=self.scale * advantage)
        if self.zero_variance == "keep":
            return rollout
        return self._drop(rollout, self._has_zero_advantage(rewards, [*weights.values()], groups))

    def _weights(self, main: str) -> Mapping[str, float]:
        weights = {main: 1.0} if self.weights is None else self.weights
        return {name: weight for name, weight in weights.items() if weight != 0}

    def _aggregate(self, rewards: list[Tensor], weights: list[float], groups: Tensor) -> Tensor:
        if self.aggregate == "gdpo":
            return gdpo(rewards, weights, groups, unbiased=self.unbiased, eps=self.eps)
        if self.aggregate == "sum":
            return self._normalise(weighted_sum(rewards, weights), groups)
        return weighted_sum([self._normalise(reward, groups) for reward in rewards], weights)

    def _has_zero_advantage(
        self, rewards: list[Tensor], weights: list[float], groups: Tensor
    ) -> Tensor:
        """Whether a sample's group has zero advantages throughout, `[B]`.

        Decided by the rewards: the advantages themselves are rounded and may be tiny instead of 0.
        """
        if self.mean == "global" and self.aggregate != "gdpo":
            return torch.zeros(len(groups), dtype=torch.bool)
        if self.aggregate == "sum":
            return is_constant_group(weighted_sum(rewards, weights), groups)
        return torch.stack([is_constant_group(reward, groups) for reward in rewards]).all(0)

    def _drop(self, rollout: Rollout, dropped: Tensor) -> Rollout:
        if not dropped.any():
            return rollout
        kept = rollout[(~dropped).nonzero().flatten()]
        if self.zero_variance == "renormalise":
            return kept
        return replace(kept, loss_weight=len(kept) / len(rollout))
