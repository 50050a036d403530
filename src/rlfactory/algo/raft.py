"""Rejection sampling: supervised fine-tuning on the best of each group of the policy's samples."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rlfactory.algo.base import PAIR
from rlfactory.algo.ops.preference import best_and_worst
from rlfactory.algo.sft import SFT
from rlfactory.rollout import Rollout
from rlfactory.utils.types import Faults


class RAFT(SFT):
    """`SFT` on the policy's own samples (RAFT, arXiv 2304.06767): of each group the completion with
    the highest score is learned, and the others are not.

    Groups whose scores are equal are left out: their samples are no selection.
    """

    samples_from = "policy"
    columns = ()
    data_scores = {}

    def __init__(self) -> None:
        """No options: what is learned is chosen by the reward alone."""

    @staticmethod
    def items(options: Mapping[str, Any], run: Mapping[str, Any], steps: Sequence[int]) -> float:
        """One of a group."""
        return float(1 / run["group_size"])

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """Each group has a better and a worse sample."""
        if run["group_size"] == 1:
            message = "is 1, but the best sample of a group is learned; allowed are 2 or more"
            yield "group_size", message, "group_size=8"

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """An advantage of 1 for each token of the best completion of each group."""
        pairs = best_and_worst(rollout, rollout.rewards[main].float().cpu())
        return super().compute_advantages(pairs[torch.arange(0, len(pairs), PAIR)], main)
