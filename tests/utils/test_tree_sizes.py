"""The sizes of BranchGRPO's published tree: 20 steps, splits at 0, 3, 6 and 9, 16 leaves."""

import pytest

from rlfactory.utils.sizes import (
    branching_factor,
    edges_per_leaf,
    kept_children,
    nodes_after,
    skipped_steps,
)

SPLITS = [0, 3, 6, 9]


def test_a_split_has_as_many_children_as_the_leaves_ask_for() -> None:
    assert branching_factor(16, 4) == 2
    assert branching_factor(27, 3) == 3
    assert branching_factor(1, 0) == branching_factor(1, 5) == 1
    for branches, splits in ((12, 2), (2, 0), (16, 3)):
        with pytest.raises(ValueError, match="no power"):
            branching_factor(branches, splits)


def test_nodes_of_the_published_tree() -> None:
    expected = [1, *[2] * 3, *[4] * 3, *[8] * 3, 16, 16]
    assert [nodes_after(i, 16, SPLITS) for i in range(-1, 11)] == expected


def test_published_training_passes() -> None:
    # 13.68 is said to be 219 nodes for 16 leaves; the root of them needs no training
    assert edges_per_leaf(range(20), 16, SPLITS) == 218 / 16
    # 8.625, width: half of the leaves in the ten steps after the last split
    kept = kept_children("extremes", 0.5, 2, 16) / 16
    assert edges_per_leaf(range(20), 16, SPLITS, kept=kept) == 8.625
    # 8.625, depth: without five of these steps
    assert edges_per_leaf(range(15), 16, SPLITS) == 8.625


def test_a_group_keeps_a_share_of_its_leaves() -> None:
    assert kept_children("none", 0.5, 2, 16) == 16
    assert kept_children("best_child", 0.5, 2, 16) == 8
    assert kept_children("best_child", 0.1, 4, 16) == 4
    assert kept_children("extremes", 0.25, 2, 16) == 4
    assert kept_children("extremes", 0.1, 2, 4) == 2
    assert kept_children("extremes", 0.1, 1, 1) == 1


def test_pruned_depths_slide_towards_noise_and_stop() -> None:
    first = [15, 16, 17, 18, 19]
    assert skipped_steps(first, 29, 30, 8) == first
    assert skipped_steps(first, 30, 30, 8) == [14, 15, 16, 17, 18]
    assert skipped_steps(first, 299, 30, 8) == [8, 9, 10, 11, 12]
    assert skipped_steps(first, 299, None, 8) == first
    assert skipped_steps(first, 299, 1, 17) == first
    assert skipped_steps([], 9, 1, 0) == []
