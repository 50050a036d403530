"""Which samples each update of an iteration learns from."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from rlfactory import keyed

Shares = Literal["random", "even"]


def shares(
    kind: Shares, groups: Tensor, updates: int, *, seed: int, key: Sequence[int]
) -> Sequence[Tensor]:
    """The numbers of the samples of each update, in random order; each sample is in one of them.

    `random`: of all samples of `groups` `[B]`. `even`: of each group equally many, up to one, so
    that processes, which have whole groups, are busy for equally long in each update.
    """
    generator = keyed.generator(seed, "order", *key)
    order = torch.randperm(len(groups), generator=generator)
    if kind == "random":
        return order.tensor_split(updates)
    by_group = order[groups[order].argsort(stable=True)]
    mixed = torch.randperm(len(groups), generator=generator)
    return [_mixed(by_group, mixed, start, updates) for start in range(updates)]


def _mixed(by_group: Tensor, order: Tensor, start: int, step: int) -> Tensor:
    """Every so many, as `order` has them: what is learned from together is not of one group."""
    return by_group[order[order % step == start]]
