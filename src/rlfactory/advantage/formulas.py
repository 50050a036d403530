"""The arithmetic of advantages: one reward normalised, several made one, large ones held back."""

from collections.abc import Sequence
from functools import reduce
from typing import Literal

import torch
from torch import Tensor

from rlfactory.advantage.statistics import group_mean, group_std

Scope = Literal["group", "global"]
StdScope = Literal["group", "global", "none"]
EpsAs = Literal["added", "floor"]
ClipKind = Literal["hard", "soft"]


def group_advantages(
    rewards: Tensor,
    groups: Tensor,
    *,
    mean: Scope = "group",
    std: StdScope = "group",
    unbiased: bool = False,
    eps: float = 1e-4,
    eps_as: EpsAs = "added",
) -> Tensor:
    """`(r - mean) / (std + eps)`, `[B]` in the precision of `rewards`; `floor`: `max(std, eps)`.

    Either statistic is the group's or the whole batch's; `std="none"` divides by nothing.
    Flow-GRPO, DiffusionNFT: population std of either scope, 1e-4 added. DanceGRPO: group, unbiased,
    1e-8 added. Flow-Factory: population, a floor of 1e-6. V-GRPO: unbiased, a floor of 1e-6.
    """
    whole = torch.zeros_like(groups)
    moved = rewards - group_mean(rewards, groups if mean == "group" else whole)
    if std == "none":
        return moved
    scale = group_std(rewards, groups if std == "group" else whole, unbiased=unbiased)
    return moved / (scale + eps if eps_as == "added" else scale.clamp(min=eps))


def weighted(values: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """`sum_k w_k v_k`, `[B]`; where the `v_k` are the same, so is the sum, to the bit."""
    terms = [weight * each for weight, each in zip(weights, values, strict=True)]
    return reduce(torch.add, terms)


def gdpo_sum(
    rewards: Sequence[Tensor],
    weights: Sequence[float],
    groups: Tensor,
    *,
    unbiased: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """`sum_k w_k (r_k - mean_g) / max(std_g, eps)`, `[B]`: GDPO's first stage."""
    own = [
        group_advantages(each, groups, unbiased=unbiased, eps=eps, eps_as="floor")
        for each in rewards
    ]
    return weighted(own, weights)


def gdpo(
    rewards: Sequence[Tensor],
    weights: Sequence[float],
    groups: Tensor,
    *,
    unbiased: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """The first stage's sum a, normalised once more: `(a - mean) / max(std, eps)` over the batch.

    A reward counts by its weight, whatever its scale (GDPO as in Flow-Factory, its default).
    """
    summed = gdpo_sum(rewards, weights, groups, unbiased=unbiased, eps=eps)
    whole = torch.zeros_like(groups)
    return group_advantages(summed, whole, unbiased=unbiased, eps=eps, eps_as="floor")


def clipped(advantage: Tensor, limit: float, kind: ClipKind = "hard") -> Tensor:
    """`clamp(A, -c, c)`, or V-GRPO's soft `c tanh(A / c)`, which keeps the order of all."""
    if kind == "soft":
        return limit * torch.tanh(advantage / limit)
    return advantage.clamp(-limit, limit)
