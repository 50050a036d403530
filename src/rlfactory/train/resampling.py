"""Dynamic sampling (DAPO, arXiv 2503.14476): groups without variance give way to others.

A group whose samples all have equal rewards has advantages of 0 and teaches nothing. Further rounds
of sampling, each of as many groups with prompts and random numbers of their own, go on until there
are enough groups that differ within.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rlfactory.algo.advantage.formulas import is_constant_group
from rlfactory.hardware.base import Hardware
from rlfactory.rollout import Rollout, append_rollouts
from rlfactory.train.data_parallel import gather_rollout

SEED_STRIDE = 2**32
"""Between the seeds of two rounds; those of runs are smaller."""


def varied_groups(rollout: Rollout, names: Sequence[str]) -> Tensor:
    """The numbers of the groups in which some of the named scores differ, ascending; a sample
    without a score does not count.
    """
    varied = torch.zeros(len(rollout), dtype=torch.bool)
    for name in names:
        scores = rollout.rewards[name]
        known = torch.isfinite(scores).nonzero().flatten()
        varied[known] |= ~is_constant_group(scores[known], rollout.groups[known])
    return torch.unique(rollout.groups[varied])


def resample(
    rollout: Rollout,
    draw: Callable[[int], Rollout],
    names: Sequence[str],
    *,
    groups: int,
    rounds: int,
    hardware: Hardware,
) -> tuple[Rollout, dict[str, float]]:
    """Add rounds of samples until `groups` groups differ within, or all `rounds` are made.

    Args:
        rollout: this rank's samples of the first round, scored.
        draw: draws and scores the samples of a further round, from 1.
        names: the scores that train.

    Returns:
        This rank's samples of all rounds, and metrics.
    """
    made = 0
    while True:
        found = len(varied_groups(gather_rollout(rollout, hardware), names))
        if found >= groups or made == rounds:
            kept = float(min(found, groups))
            return rollout, {"resample/rounds": float(made), "resample/groups": kept}
        made += 1
        rollout = append_rollouts([rollout, draw(made)])


def keep_varied(rollout: Rollout, names: Sequence[str], groups: int) -> Rollout:
    """The samples of the first `groups` groups that differ within; all samples if none does."""
    numbers = varied_groups(rollout, names)[:groups]
    if not len(numbers):
        return rollout
    return rollout[torch.isin(rollout.groups, numbers).nonzero().flatten()]


def renumbered(rollout: Rollout, number: int, groups: int, group_size: int) -> Rollout:
    """The samples of round `number` with all numbers behind those of earlier rounds.

    Besides groups and indices these are the numbers of groups that are compared and of a tree's
    nodes, of which a round has no more than samples.
    """
    samples = number * groups * group_size
    compared, tree = rollout.comparison_group, rollout.tree
    return replace(
        rollout,
        groups=rollout.groups + number * groups,
        index=rollout.index + samples,
        comparison_group=None if compared is None else compared + samples,
        tree=tree and replace(tree, node=tree.node + samples),
    )
