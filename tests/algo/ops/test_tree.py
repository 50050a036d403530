"""Fused rewards and pruning, on trees that are computed by hand."""

import math

import pytest
import torch

from rlfactory.algo.ops.tree import fuse_rewards, own_edges, prune_width

# one tree of four leaves: the first step splits, the second does not, the third splits, then one
# more step. Columns: the root, and the node after each of the four steps.
NODE = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 2, 2, 2, 2], [0, 2, 2, 3, 3]])
REWARDS = torch.tensor([1.0, 3.0, 2.0, 8.0], dtype=torch.float64)
LOG_PROB = torch.tensor(
    [[0.0, 5, 0.0, 9], [0.0, 5, math.log(3), 9], [math.log(4), 5, 2.0, 9], [math.log(4), 5, 2.0, 9]]
)


def test_each_edge_is_counted_for_its_first_leaf() -> None:
    found = own_edges(NODE)
    assert found.int().tolist() == [[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 1, 1]]
    # a leaf that is missing, since its reward failed, leaves its edges to the next one
    assert own_edges(NODE[1:]).int().tolist() == [[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 1, 1]]


def test_a_node_has_the_mean_reward_of_the_leaves_below_it() -> None:
    found = fuse_rewards(REWARDS, NODE, LOG_PROB, "mean")
    assert found.tolist() == [[2, 2, 1, 1], [2, 2, 3, 3], [5, 5, 2, 2], [5, 5, 8, 8]]


def test_children_are_weighted_by_the_likelihood_of_their_step() -> None:
    found = fuse_rewards(REWARDS, NODE, LOG_PROB, "probability")
    # of nodes 0 and 1, below 0, weights 1 and 3: (1 + 3 * 3) / 4; of 2 and 3 equal ones: 5
    expected = [[2.5, 2.5, 1, 1], [2.5, 2.5, 3, 3], [5, 5, 2, 2], [5, 5, 8, 8]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_weights_go_upwards_from_split_to_split() -> None:
    # a root with two children by the second step, which the first one does not see
    node = torch.cat([torch.zeros(4, 1, dtype=torch.int64), NODE], 1)
    log_prob = torch.cat([torch.zeros(4, 1), LOG_PROB], 1)
    found = fuse_rewards(REWARDS, node, log_prob, "probability")
    # weights 1 and 4 of fused rewards 2.5 and 5
    torch.testing.assert_close(found[:, 0], torch.full((4,), 4.5, dtype=torch.float64))


def test_the_best_child_of_each_last_split_goes_on() -> None:
    found = prune_width(REWARDS, NODE, torch.zeros(4), "best_child", 0.5)
    # all edges up to the split itself, then of the best leaves alone
    assert found[:, :3].all()
    assert found[:, 3].tolist() == [False, True, False, True]


def test_the_best_and_the_worst_leaves_of_a_group_go_on() -> None:
    scores, groups = torch.cat([REWARDS, -REWARDS]), torch.arange(2).repeat_interleave(4)
    found = prune_width(scores, torch.cat([NODE, NODE + 4]), groups, "extremes", 0.5)
    assert found[:, :3].all()
    assert found[:, 3].tolist() == [True, False, False, True] * 2


@pytest.mark.parametrize("width", ["none", "best_child", "extremes"])
def test_without_a_split_nothing_is_pruned(width: str) -> None:
    node = torch.arange(4)[:, None].expand(-1, 4)
    assert prune_width(REWARDS, node, torch.zeros(4), width, 0.5).all()  # type: ignore[arg-type]
    assert prune_width(REWARDS, NODE, torch.zeros(4), "none", 0.5).all()
