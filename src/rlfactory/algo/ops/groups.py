"""Training items whose loss compares all samples of a group: whole groups in each micro-batch.

A cell is the samples of one group at one time. Its items follow one another.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from rlfactory.algo.ops.noised_items import ForwardAlgorithm
from rlfactory.batch import Batch, TrainingItems
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require, to_device, widened


@dataclass(frozen=True)
class GroupBatch(Batch):
    """A micro-batch of whole cells.

    Attributes:
        cell: Number of each item's cell within the micro-batch, `[N]`.
    """

    cell: Tensor = field(kw_only=True)


@dataclass(frozen=True)
class GroupItems(TrainingItems):
    """Items of samples in groups, those of a cell one after the other.

    Attributes:
        cells: How many items each cell has, in the order of `selected`.
    """

    cells: tuple[int, ...] = ()

    def starts(self, size: int) -> range:
        """The numbers of the micro-batches, whose sizes differ."""
        return range(len([*_filled(self.cells, size)]))

    def split(self, size: int, starts: range | None = None) -> Iterator[Batch]:
        """Yield micro-batches of whole cells: at most `size` items, or one cell with more."""
        numbers, end = require(self.selected, "the items of whole groups"), 0
        for number, cells in enumerate(_filled(self.cells, size)):
            start, end = end, end + sum(cells)
            if starts is not None and number not in starts:
                continue
            part = replace(self, selected=numbers[start:end])
            (batch,) = TrainingItems.split(part, size, range(0, end - start, end - start))
            cell = torch.arange(len(cells)).repeat_interleave(torch.tensor(cells))
            yield widened(GroupBatch, batch, cell=to_device(cell, batch.t.device))

    @classmethod
    def of(cls, items: TrainingItems, groups: Tensor) -> "GroupItems":
        """The items of B samples of the groups `groups` `[B]`, T items each."""
        samples, count = items.t.shape
        numbers = torch.arange(samples * count).view(samples, count)
        order = groups.argsort(stable=True)
        sizes = torch.unique_consecutive(groups[order], return_counts=True)[1].tolist()
        of_cells = [rows.T.flatten() for rows in torch.split(numbers[order], sizes)]
        selected = to_device(torch.cat(of_cells), items.t.device)
        cells = tuple(size for size in sizes for _ in range(count))
        return widened(cls, items, selected=selected, cells=cells)


def _filled(cells: tuple[int, ...], size: int) -> Iterator[list[int]]:
    """The sizes of neighbouring cells, which are at most `size` together or of a single one."""
    filled: list[int] = []
    for cell in cells:
        if filled and sum(filled) + cell > size:
            yield filled
            filled = []
        filled.append(cell)
    if filled:
        yield filled


def cell_means(values: Tensor, batch: Batch, log_weight: Tensor | None = None) -> Tensor:
    """The mean of `values` `[N]` over each item's cell, `[N]`; ValueError without cells.

    Args:
        values: `[N]`.
        batch: A `GroupBatch` of N items.
        log_weight: Logarithms of the weights in the mean, up to a constant, `[N]`; None: equal.
    """
    cell: Tensor = require(getattr(batch, "cell", None), "the items of whole groups")
    # a product of matrices: a scattered sum adds in another order in each run on a GPU
    same = cell[:, None] == cell
    if log_weight is None:
        return same.to(values) @ values / same.to(values).sum(1)
    return log_weight.expand_as(same).masked_fill(~same, -torch.inf).softmax(1) @ values


class GroupAlgorithm(ForwardAlgorithm):
    """An algorithm on final samples whose loss compares those of a group, in a `GroupBatch`."""

    learns_from_groups = True

    def normalise_update(self, samples: Rollout) -> Rollout:
        """The samples of each group together."""
        return samples[samples.groups.argsort(stable=True)]

    def training_items(self, rollout: Rollout, model: ImageModel, **key: int) -> TrainingItems:
        items = super().training_items(rollout, model, **key)
        return GroupItems.of(items, rollout.groups)
