"""Sizes of a tree of trajectories (BranchGRPO), from the numbers of a configuration. No torch."""

from collections.abc import Collection, Sequence

NO_SPLIT = -1
"""The last split of a tree without one: all of its steps come after it."""


def branching_factor(branches: int, splits: int) -> int:
    """How many children a node has at a split, for `branches` leaves after all `splits`.

    Raises:
        ValueError: No whole number, to the power of `splits`, is `branches`.
    """
    factor = round(branches ** (1 / splits)) if splits else 1
    if factor**splits != branches:
        raise ValueError(f"{branches} leaves are no power of {splits} for any number of children")
    return factor


def nodes_after(step: int, branches: int, splits: Sequence[int]) -> int:
    """How many nodes a tree has after a sampling step; it ends with `branches` leaves."""
    return int(branching_factor(branches, len(splits)) ** sum(split <= step for split in splits))


def skipped_steps(
    steps: Sequence[int], iteration: int, every: int | None, stop: int
) -> Sequence[int]:
    """Depth pruning: the sampling steps that are not learned from in an iteration.

    Args:
        steps: Those of the first iteration.
        iteration: Number of the iteration, from 0.
        every: Iterations after which all of them move by one towards noise; None: they never move.
        stop: The first of them moves no further than to this step.
    """
    if not steps or every is None:
        return steps
    shift = min(iteration // every, max(0, min(steps) - stop))
    return [step - shift for step in steps]


def kept_children(width: str, share: float, factor: int, leaves: int) -> int:
    """Width pruning: how many of a group's leaves are learned from after the last split.

    Args:
        width: `none`; `best_child`: `share` of the children of each last split, at least one;
            `extremes`: `share` of the group's leaves, at least two.
        share: The share that is kept.
        factor: Children of a split.
        leaves: Leaves of the group.
    """
    if width == "best_child":
        return max(1, int(share * factor)) * (leaves // factor)
    return min(leaves, max(2, int(share * leaves))) if width == "extremes" else leaves


def edges_per_leaf(
    steps: Collection[int],
    branches: int,
    splits: Sequence[int],
    *,
    kept: float = 1.0,
) -> float:
    """Training items of a tree for each of its leaves: one for each edge of the stochastic `steps`.

    `kept` is the share of the leaves that is learned from after the last split.
    """
    last = max(splits, default=NO_SPLIT)
    shares = (1.0 if step <= last or not splits else kept for step in steps)
    nodes = (nodes_after(step, branches, splits) for step in steps)
    return sum(n * share for n, share in zip(nodes, shares, strict=True)) / branches
