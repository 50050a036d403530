"""BranchGRPO (arXiv 2509.06040): GRPO on trees of trajectories, with a reward for every edge."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlfactory.algo.ops.step_replay import ClippedStepAlgorithm, transition_items
from rlfactory.algo.ops.tree import Fusion, Width, fuse_rewards, own_edges, prune_width
from rlfactory.batch import TrainingItems
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout, Tree
from rlfactory.utils.pytree import require
from rlfactory.utils.sizes import skipped_steps
from rlfactory.utils.types import Faults, NonNegativeInt, PositiveFraction, PositiveInt


class BranchGRPO(ClippedStepAlgorithm):
    """With `r = p / p_old` of an edge, which is a step that all leaves below it share,

        loss = mean over edges max(-A r, -A clip(r, 1 - c, 1 + c)),

    where A compares the edge's fused reward with those of the same depth in the group. Each edge
    is trained once.

    Args:
        clip_range: c: clip of the ratio, whose log is a mean over dimensions; published: 1e-3.
        fusion: How the rewards of leaves become that of a node above them, see `fuse_rewards`.
        width: Leaves whose edges after the last split are trained, see `prune_width`.
        width_kept: The share of the leaves that `width` keeps.
        skip_steps: Depth pruning: sampling steps that are not trained, in the first iteration.
        slide_every: Iterations after which these move by a step towards noise; None: they stay.
        slide_to: The step at which the first of them stops.
    """

    trains_tree = True

    def __init__(
        self,
        *given: Any,
        fusion: Fusion = "mean",
        width: Width = "none",
        width_kept: PositiveFraction = 0.5,
        skip_steps: list[NonNegativeInt] | None = None,
        slide_every: PositiveInt | None = None,
        slide_to: NonNegativeInt = 0,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.fusion: Fusion = fusion
        self.width: Width = width
        self.width_kept = width_kept
        self.skip_steps = skip_steps or []
        self.slide_every, self.slide_to = slide_every, slide_to

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """Splits are at sampling steps and lead to the leaves; depth pruning leaves out steps."""
        steps, skipped = int(run["schedule"]["steps"]), options["skip_steps"] or []
        splits, leaves = run["tree"]["splits"], run["branches"]
        for place, named in (("skip_steps", [*{*skipped}]), ("tree.splits", splits)):
            inside = sorted({step for step in named if step < steps})
            if inside != sorted(named):
                message = f"is {named}; allowed are different steps from 0 to {steps - 1}"
                key = place if "." in place else f"algo.{place}"
                yield place, message, f"{key}=[{','.join(map(str, inside))}]"
        powers = {number ** len(splits) for number in range(1, leaves + 1)}
        if run["branch_at"] == "tree" and leaves not in powers:
            allowed = [number ** len(splits) for number in (2, 3, 4)] if splits else [1]
            shown = ", ".join(map(str, allowed))
            message = f"is {leaves}, but {len(splits)} splits make {shown} leaves"
            yield "branches", message, f"branches={allowed[0]}"

    @staticmethod
    def items(options: Mapping[str, Any], run: Mapping[str, Any], steps: Sequence[int]) -> float:
        """Edges that are trained, for each leaf; of pruned steps that move, in iteration 0."""
        from rlfactory.utils import sizes as tree

        every, stop = options.get("slide_every"), options.get("slide_to", 0)
        skipped = tree.skipped_steps(options.get("skip_steps") or [], 0, every, stop)
        leaves, branches, splits = run["group_size"], run["branches"], run["tree"]["splits"]
        factor = tree.branching_factor(branches, len(splits))
        width, share = options.get("width", "none"), options.get("width_kept", 1.0)
        kept = tree.kept_children(width, share, factor, leaves) / leaves
        trained = [step for step in steps if step not in skipped]
        return tree.edges_per_leaf(trained, branches, splits, kept=kept)

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """Advantages of edges, `[B, T]`, and which of them are trained."""
        tree = _require_tree(rollout)
        node, log_prob = tree.node.cpu(), tree.log_prob.cpu()
        fused = {
            # float64, as advantages are computed: rewards may differ in their last digits only
            name: fuse_rewards(rollout.rewards[name].double(), node, log_prob, self.fusion)
            for name in self.reward_names(main)
        }
        own = own_edges(node)
        columns = []
        for depth, column in enumerate(node[:, 1:].unbind(1)):
            rows = own[:, depth].nonzero().flatten()
            rewards = {name: values[rows, depth] for name, values in fused.items()}
            nodes = replace(rollout[rows], rewards=rewards)
            found = require(self.advantage, "an advantage")(nodes, main)
            columns.append(_spread(require(found.advantage, "advantages"), rows, column))
        advantage = torch.stack(columns, 1)
        kept = prune_width(advantage[:, -1], node, rollout.groups, self.width, self.width_kept)
        return replace(rollout, advantage=advantage, tree=replace(tree, trained=own & kept))

    def training_items(
        self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int
    ) -> TrainingItems:
        """One item for each edge that is trained."""
        tree = _require_tree(rollout)
        items = transition_items(rollout, model)
        if tree.trained is None:  # a sample without advantages only pads the passes of a rank
            return items
        steps = skipped_steps(self.skip_steps, iteration, self.slide_every, self.slide_to)
        kept = tree.trained & ~torch.isin(tree.step, torch.tensor(steps, dtype=tree.step.dtype))
        return items.select(kept)


def _require_tree(rollout: Rollout) -> Tree:
    return require(rollout.tree, "samples of a tree (branch_at=tree)")


def _spread(values: Tensor, rows: Tensor, column: Tensor) -> Tensor:
    """Values of nodes, known in one of their rows each, in all rows of `column` `[B]`."""
    _, member = torch.unique(column, return_inverse=True)
    table = torch.empty_like(values)
    table[member[rows]] = values
    return table[member]
