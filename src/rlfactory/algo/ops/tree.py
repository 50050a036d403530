"""Reward fusion and pruning on trees of trajectories (BranchGRPO, arXiv 2509.06040).

B leaves, which are the samples, with T stochastic steps each. `node` `[B, T + 1]` names the node
that a leaf descends from before the first step and after each; leaves with the same number share
the node, and all edges before it.
"""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.algo.advantage.formulas import group_index, group_mean, group_sum
from rlfactory.utils.sizes import kept_children

Fusion = Literal["mean", "probability"]
Width = Literal["none", "best_child", "extremes"]


def is_first(numbers: Tensor) -> Tensor:
    """Whether each of `numbers` `[B]` is the first of its value, `[B]`."""
    _, member = torch.unique(numbers, return_inverse=True)
    rows = torch.arange(len(numbers))
    first = torch.full((len(numbers),), len(numbers))
    first = first.scatter_reduce(0, member, rows, "amin")
    return first[member] == rows


def own_edges(node: Tensor) -> Tensor:
    """The one leaf that each edge, which several may share, is counted for, `[B, T]`.

    It is the first of them.
    """
    return torch.stack([is_first(column) for column in node[:, 1:].unbind(1)], 1)


def fuse_rewards(rewards: Tensor, node: Tensor, log_prob: Tensor, fusion: Fusion) -> Tensor:
    """The reward of the node after each step, from those of the leaves below it.

        mean         the mean over all leaves
        probability  sum_c softmax_c(log p_c) r_c over the children c, upwards from the leaves

    Args:
        rewards: Those of the leaves, `[B]`.
        node: `[B, T + 1]`.
        log_prob: Log-probability of the step that led to each node, `[B, T]`.
        fusion: The row of the table.

    Returns:
        `[B, T]`, the same for all leaves of a node.
    """
    columns = [*node[:, 1:].unbind(1)]
    if fusion == "mean":
        return torch.stack([group_mean(rewards, column) for column in columns], 1)
    fused = [rewards]
    for j in reversed(range(len(columns) - 1)):
        # of each child one row, and its weight among those of the same parent
        rows = is_first(columns[j + 1]).nonzero().flatten()
        member, size = group_index(columns[j])
        parent = member[rows]
        weight = log_prob[rows, j + 1].to(rewards).exp()
        total = group_sum(weight, parent, len(size))
        fused.append((group_sum(weight * fused[-1][rows], parent, len(size)) / total)[member])
    return torch.stack(fused[::-1], 1)


def prune_width(scores: Tensor, node: Tensor, groups: Tensor, width: Width, share: float) -> Tensor:
    """Width pruning: the edges that are learned from, `[B, T]`; all up to the last split are.

    `best_child` keeps the best leaves of each last split, `extremes` the best and the worst leaves
    of a group, half of each; `sizes.kept_children` says how many.

    Args:
        scores: What leaves are ranked by, `[B]`.
        node: `[B, T + 1]`.
        groups: `[B]`.
        width: What is kept.
        share: The share of the leaves that is kept.
    """
    kept = torch.ones(len(node), node.shape[1] - 1, dtype=torch.bool)
    splits = (node[:, 1:] != node[:, :-1]).any(0).nonzero().flatten()
    if width == "none" or not len(splits):
        return kept
    last = int(splits[-1])
    families = node[:, last] if width == "best_child" else groups
    for family in torch.unique(families):
        rows = (families == family).nonzero().flatten()
        count = kept_children(width, share, len(rows), len(rows))
        ranked = rows[scores[rows].argsort(descending=True, stable=True)]
        best = count if width == "best_child" else count // 2
        kept[ranked[best : len(rows) - (count - best)], last + 1 :] = False
    return kept
