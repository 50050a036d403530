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
    """`(r - mean of the group) / (std + eps)`, `[B]`; the deviation is the group's own or the whole batch's.

    Flow-GRPO, DiffusionNFT: population std, eps 1e-4, either scope. DanceGRPO: group, unbiased, eps 1e-8.
    """
    rewards = rewards.double()
    _, member, size = groups.unique(return_inverse=True, return_counts=True)
    centred = rewards - group_sum(rewards, member, len(size))[member] / size[member]
    if std == "global":
        scale = rewards.std(unbiased=unbiased).expand_as(rewards)
    else:
        squares = group_sum(centred**2, member, len(size)) / (size - int(unbiased)).clamp(min=1)
        scale = squares.sqrt()[member]
    return (centred / (scale + eps)).float()


def group_sum(values: Tensor, member: Tensor, count: int) -> Tensor:
    """Sum of `values` `[B]` over each of `count` groups, `[count]`."""
    return torch.zeros(count, dtype=values.dtype).index_add_(0, member, values)
