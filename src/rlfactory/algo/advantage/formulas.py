"""Formulas of sequence-level advantages: group statistics, leave-one-out, GDPO, clipping.

Rewards and groups are `[B]`, on the CPU; callers pass float64, so that the small differences of a
group survive the subtraction of its mean. `groups` holds any integers, equal within a group.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Literal

import torch
from torch import Tensor


def group_mean(values: Tensor, groups: Tensor) -> Tensor:
    """For each of `values` `[B]` the mean of its group, `[B]`; exactly the value of equal ones."""
    member, size = group_index(groups)
    mean = (group_sum(values, member, len(size)) / size)[member]
    # a sum of equal values is rounded, and an error of 1e-17 is an advantage to Adam
    return torch.where(is_constant_group(values, groups), values, mean)


def group_std(values: Tensor, groups: Tensor, *, unbiased: bool = False) -> Tensor:
    """For each of `values` `[B]` the standard deviation of its group, `[B]`; 0 for a group of 1."""
    member, size = group_index(groups)
    squares = group_sum((values - group_mean(values, groups)) ** 2, member, len(size))
    return (squares / (size - int(unbiased)).clamp(min=1)).sqrt()[member]


def is_constant_group(values: Tensor, groups: Tensor) -> Tensor:
    """For each of `values` `[B]` whether its group's values are equal to the last bit, `[B]`."""
    member, size = group_index(groups)
    empty = torch.zeros(len(size), dtype=values.dtype)
    low = empty.scatter_reduce(0, member, values, "amin", include_self=False)
    high = empty.scatter_reduce(0, member, values, "amax", include_self=False)
    return (low == high)[member]


def group_index(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Number the groups from 0: each sample's group number `[B]`, and each group's size.

    `groups` `[B]` holds any integers, in any order.
    """
    _, member, size = torch.unique(groups, return_inverse=True, return_counts=True)
    return member, size


def group_sum(values: Tensor, member: Tensor, count: int) -> Tensor:
    """Sum of `values` `[B]` over each of `count` groups, `[count]` by group number."""
    return torch.zeros(count, dtype=values.dtype).index_add_(0, member, values)


Scope = Literal["group", "global"]
StdScope = Literal["group", "global", "none"]
Divisor = Literal["group", "global", "none", "mean"]
EpsAs = Literal["added", "floor"]
ClipKind = Literal["hard", "soft"]


def group_advantages(
    rewards: Tensor,
    groups: Tensor,
    *,
    mean: Scope = "group",
    std: Divisor = "group",
    unbiased: bool = False,
    eps: float = 1e-4,
    eps_as: EpsAs = "added",
) -> Tensor:
    """`A = (r - mean) / (std + eps)`, or `(r - mean) / max(std, eps)` with `eps_as="floor"`.

    Published settings: Flow-GRPO and DiffusionNFT use the population std of either scope and add
    1e-4; DanceGRPO the unbiased std of the group and adds 1e-8; Flow-Factory the population std and
    a floor of 1e-6; V-GRPO the unbiased std and a floor of 1e-6. MaxRL (arXiv 2602.02710) has the
    group's mean for the std, of scores of 0 and 1: an order of the gradient of log p for each
    sample, and 0 where all fail.

    Args:
        rewards: `[B]`.
        groups: `[B]`.
        mean: Whether to subtract the mean of the group or of the batch.
        std: Whether to divide by the std of the group, of the batch, or not at all; or by the
            `mean` of the group.
        unbiased: Whether the variance is divided by n - 1 instead of n.
        eps: Keeps the denominator above zero.
        eps_as: Whether `eps` is added to the std or is its lower bound.

    Returns:
        Advantages `[B]` in the dtype of `rewards`.
    """
    batch = torch.zeros_like(groups)
    centred = rewards - group_mean(rewards, groups if mean == "group" else batch)
    if std == "none":
        return centred
    if std == "mean":
        scale = group_mean(rewards, groups)
    else:
        scale = group_std(rewards, groups if std == "group" else batch, unbiased=unbiased)
    return centred / (scale + eps if eps_as == "added" else scale.clamp(min=eps))


def rloo_advantages(rewards: Tensor, groups: Tensor) -> Tensor:
    """RLOO (arXiv 2402.14740): reward minus the mean reward of the group's other samples, `[B]`.

    The baseline does not depend on the sample, so it adds no bias. A group of one gets 0.
    """
    member, size = group_index(groups)
    # n / (n - 1) (r - mean of all) = r - mean of the others
    scale = size / (size - 1).clamp(min=1)
    return (rewards - group_mean(rewards, groups)) * scale[member]


def weighted_sum(values: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """`sum_k w_k v_k`, `[B]`; samples with equal `v_k` get sums that are equal to the bit."""
    terms = [weight * value for weight, value in zip(weights, values, strict=True)]
    return reduce(torch.add, terms)


def gdpo_sum(
    rewards: Sequence[Tensor],
    weights: Sequence[float],
    groups: Tensor,
    *,
    unbiased: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """GDPO's first stage: `sum_k w_k (r_k - mean_group) / max(std_group, eps)`, `[B]`."""
    advantages = [
        group_advantages(reward, groups, unbiased=unbiased, eps=eps, eps_as="floor")
        for reward in rewards
    ]
    return weighted_sum(advantages, weights)


def gdpo(
    rewards: Sequence[Tensor],
    weights: Sequence[float],
    groups: Tensor,
    *,
    unbiased: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """GDPO as in Flow-Factory: with a from `gdpo_sum`, `(a - mean_batch) / max(std_batch, eps)`.

    A reward counts by its weight, whatever its scale. Returns `[B]`.
    """
    summed = gdpo_sum(rewards, weights, groups, unbiased=unbiased, eps=eps)
    batch = torch.zeros_like(groups)
    return group_advantages(summed, batch, unbiased=unbiased, eps=eps, eps_as="floor")


def clip_advantages(advantage: Tensor, limit: float, kind: ClipKind = "hard") -> Tensor:
    """Hard: `clamp(A, -c, c)`. Soft (V-GRPO): `c tanh(A / c)`, which preserves the order."""
    if kind == "soft":
        return limit * torch.tanh(advantage / limit)
    return advantage.clamp(-limit, limit)
