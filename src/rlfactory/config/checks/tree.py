"""Rules on trees of trajectories (BranchGRPO)."""

from collections.abc import Iterator

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.problems import Problem
from rlfactory.utils.tree_sizes import branching_factor


def require_tree_algorithm(config: Config, traits: Traits) -> Iterator[Problem]:
    """Trees are for the algorithm that trains each edge once, and it needs them."""
    trains_tree, at = bool(traits["algo"].get("trains_tree")), config["branch_at"]
    if at == "tree" and not trains_tree:
        message = "is tree, and this algorithm would train the steps that samples share repeatedly"
        yield Problem("branch_at", message, "branch_at=window")
    elif at != "tree" and trains_tree:
        yield Problem("branch_at", f"is {at}, but this algorithm needs a tree", "branch_at=tree")


def require_whole_tree(config: Config, traits: Traits) -> Iterator[Problem]:
    """All splits are sampling steps, and lead to the leaves asked for."""
    if config["branch_at"] != "tree" or not traits["algo"].get("trains_tree"):
        return
    splits, steps = config["tree"]["splits"], int(config["schedule"]["steps"])
    inside = sorted({split for split in splits if split < steps})
    if inside != sorted(splits):
        message = f"is {splits}; allowed are different steps from 0 to {steps - 1}"
        yield Problem("tree.splits", message, f"tree.splits={_typed(inside)}")
        return
    branches = config["branches"]
    try:
        factor = branching_factor(branches, len(splits))
    except ValueError:
        factor = 0
    if factor < 2 and branches != 1:
        allowed = [number ** len(splits) for number in (2, 3, 4)] if splits else [1]
        message = f"is {branches}, but {len(splits)} splits make {_listed(allowed)} leaves"
        yield Problem("branches", message, f"branches={allowed[0]}")


def require_depth_comparison(config: Config, traits: Traits) -> Iterator[Problem]:
    """Advantages compare the edges of a depth with each other, and keep all of them."""
    if not traits["algo"].get("trains_tree"):
        return
    if not traits["advantage"].get("grouped"):
        message = "this one compares with other iterations, but edges are compared by depth"
        yield Problem("advantage", message, "advantage=group")
    elif config["advantage"].get("zero_variance", "keep") != "keep":
        message = "leaves out whole samples, but edges have advantages of their own"
        yield Problem("advantage.zero_variance", message, "advantage.zero_variance=keep")


def _typed(steps: list[int]) -> str:
    """Steps as they are typed."""
    return "[" + ",".join(str(step) for step in steps) + "]"


def _listed(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)
