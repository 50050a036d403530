"""Statistics within the groups of a batch, for each of its samples."""

import torch
from torch import Tensor


def group_mean(values: Tensor, groups: Tensor) -> Tensor:
    """For each of `values` `[B]` the mean over its group, `[B]`."""
    member, size = membership(groups)
    return (group_sum(values, member, len(size)) / size)[member]


def group_std(values: Tensor, groups: Tensor, *, unbiased: bool = False) -> Tensor:
    """For each of `values` `[B]` the deviation within its group, `[B]`; 0 where it stands alone."""
    member, size = membership(groups)
    squares = group_sum((values - group_mean(values, groups)) ** 2, member, len(size))
    return (squares / (size - int(unbiased)).clamp(min=1)).sqrt()[member]


def constant(values: Tensor, groups: Tensor) -> Tensor:
    """For each of `values` `[B]` whether all of its group are the same, to the last bit, `[B]`."""
    member, size = membership(groups)
    empty = torch.zeros(len(size), dtype=values.dtype)
    low = empty.scatter_reduce(0, member, values, "amin", include_self=False)
    high = empty.scatter_reduce(0, member, values, "amax", include_self=False)
    return (low == high)[member]


def membership(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Groups of any numbers and order, counted from 0: each sample's `[B]`, and each one's size."""
    _, member, size = torch.unique(groups, return_inverse=True, return_counts=True)
    return member, size


def group_sum(values: Tensor, member: Tensor, count: int) -> Tensor:
    """Sum of `values` `[B]` over each of `count` groups, `[count]`."""
    return torch.zeros(count, dtype=values.dtype).index_add_(0, member, values)
