"""Micro-batches hold whole groups, and a cell is a group at one time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlfactory.algo.dgpo import DGPO
from rlfactory.algo.ops.groups import GroupItems, cell_means
from rlfactory.algo.ops.noised_items import noised_items
from rlfactory.algo.times import UniformTimes
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.rollout import Rollout

GROUPS = torch.tensor([3, 1, 3, 1, 1, 7])


@pytest.fixture
def items(linear: Callable[..., Any], roll: Callable[..., Rollout]) -> GroupItems:
    model = linear()
    rollout = replace(roll(model, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), groups=GROUPS)
    sigmas = uniform_sigmas(6, 3.0)
    made = noised_items(rollout, model, UniformTimes(count=2), sigmas, seed=0, iteration=0)
    return GroupItems.of(made, GROUPS)


@pytest.mark.parametrize(
    ("size", "lengths"), [(1, [3, 3, 2, 2, 1, 1]), (5, [3, 5, 4]), (6, [6, 6]), (100, [12])]
)
def test_micro_batches_are_whole_cells(items: GroupItems, size: int, lengths: list[int]) -> None:
    batches: list[Any] = [*items.split(size)]
    assert [len(batch) for batch in batches] == lengths
    whole = torch.cat([batch.sample for batch in batches])
    assert whole.tolist() == [1, 3, 4, 1, 3, 4, 0, 2, 0, 2, 5, 5]
    for batch in batches:
        assert batch.cell[0] == 0
        for cell in batch.cell.unique():
            assert len(GROUPS[batch.sample[batch.cell == cell]].unique()) == 1


def test_a_mean_is_that_of_the_items_own_cell(items: GroupItems) -> None:
    (batch,) = items.split(100)
    values = torch.arange(12.0)
    expected = [1, 1, 1, 4, 4, 4, 6.5, 6.5, 8.5, 8.5, 10, 11]
    assert cell_means(values, batch).tolist() == expected
    whole = replace(items, cells=())
    assert [*whole.split(3)] == []


def test_items_without_cells_are_refused(items: GroupItems) -> None:
    (batch,) = items.split(100)
    other: Any = type("Other", (), {"cell": None})()
    with pytest.raises(ValueError, match="whole groups"):
        cell_means(batch.t, other)


def test_a_group_is_together(roll: Callable[..., Rollout], linear: Callable[..., Any]) -> None:
    rollout = replace(roll(linear(), [0.0] * 6), groups=GROUPS)
    assert DGPO().normalise_update(rollout).index.tolist() == [1, 3, 4, 0, 2, 5]
