"""From rewards to advantages: how much better a sample is than the others of its prompt."""

from typing import Literal

import torch
from torch import Tensor


def group_advantages(
    rewards: Tensor,
    groups: Tensor,
    *,
    std: Literal["group", "global"] = "group",
    unbiased: bool = False,
    eps: float = 1e-4,
) -> Tensor:
    """`(r - mean of the group) / (std + eps)`, `[B]`; the deviation is the group's or the batch's.

    Flow-GRPO, DiffusionNFT: population std, eps 1e-4, either scope.
    DanceGRPO: group, unbiased, eps 1e-8.
    """
    rewards = rewards.double()
    peers = groups if std == "group" else torch.zeros_like(groups)
    scale = group_std(rewards, peers, unbiased=unbiased)
    return ((rewards - group_mean(rewards, groups)) / (scale + eps)).float()


def rloo_advantages(rewards: Tensor, groups: Tensor) -> Tensor:
    """Reward minus the mean of the others of its group, `[B]`; 0 where it stands alone.

    RLOO (arXiv 2402.14740): the baseline does not depend on the sample, so it adds no bias.
    """
    rewards = rewards.double()
    member, size = membership(groups)
    # n / (n - 1) (r - mean of all) is r - mean of the others
    scale = size / (size - 1).clamp(min=1)
    return ((rewards - group_mean(rewards, groups)) * scale[member]).float()


def group_mean(values: Tensor, groups: Tensor) -> Tensor:
    """For each of `values` `[B]` the mean over its group, `[B]`."""
    member, size = membership(groups)
    return (group_sum(values, member, len(size)) / size)[member]


def group_std(values: Tensor, groups: Tensor, *, unbiased: bool = False) -> Tensor:
    """For each of `values` `[B]` the deviation within its group, `[B]`; 0 where it stands alone."""
    member, size = membership(groups)
    squares = group_sum((values - group_mean(values, groups)) ** 2, member, len(size))
    return (squares / (size - int(unbiased)).clamp(min=1)).sqrt()[member]


def membership(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Groups of any numbers and order, counted from 0: each sample's `[B]`, and each one's size."""
    _, member, size = torch.unique(groups, return_inverse=True, return_counts=True)
    return member, size


def group_sum(values: Tensor, member: Tensor, count: int) -> Tensor:
    """Sum of `values` `[B]` over each of `count` groups, `[count]`."""
    return torch.zeros(count, dtype=values.dtype).index_add_(0, member, values)
