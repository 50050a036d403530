"""Flow-GRPO (arXiv 2505.05470), DanceGRPO (2505.07818) and DDPO (2305.13301).

The policy gradient of stochastic sampling steps with PPO's clipped ratio. Of DDPO it is the
importance-sampled form; `ddpo_sf.py` has the score-function form.
"""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.algo.ops.step_replay import (
    ClippedStepAlgorithm,
    StepLosses,
    subsample_transitions,
    transition_items,
)
from rlfactory.batch import Batch, TrainingItems
from rlfactory.dynamics.base import Step
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.utils.types import PositiveFraction

Weighting = Literal["none", "tempflow", "tempflow_noise"]


def step_weight(weighting: Weighting, std: Tensor, t: Tensor, t_next: Tensor) -> Tensor:
    """Factor on a step's loss, by the noise of the step.

        none            1
        tempflow        2.25 std                 (TempFlow-GRPO, arXiv 2508.04324)
        tempflow_noise  2.25 std / sqrt(-dt)     (a variant without the step's length)

    Args:
        weighting: The row of the table.
        std: The step's standard deviation, `[N, 1, ...]`.
        t: Time before the step, `[N]`.
        t_next: Time after the step, `[N]`.

    Returns:
        `[N]`.
    """
    deviation = std.flatten()
    match weighting:
        case "none":
            return torch.ones_like(deviation)
        case "tempflow":
            return 2.25 * deviation
        case "tempflow_noise":
            return 2.25 * deviation / (t - t_next).sqrt()


class GRPO(ClippedStepAlgorithm):
    """With `r = p / p_old` of a step and A the advantage of the sample that it led to,

        loss = mean w max(-A r, -A clip(r, 1 - c, 1 + c)).

    log p is a mean over the D latent dimensions, so r is the D-th root of the true ratio, and c is
    of the order of 1e-4.

    Args:
        weighting: Weight w of a step, see `step_weight`: 1, 2.25 std, 2.25 std / sqrt(-dt).
        over_steps: Whether the losses of a sample's steps are averaged (DanceGRPO) or summed
            (DRLX).
        step_fraction: Share of a sample's transitions that is trained, drawn for each sample
            (DanceGRPO: 0.6).
    """

    def __init__(
        self,
        *given: Any,
        weighting: Weighting = "none",
        over_steps: Literal["mean", "sum"] = "mean",
        step_fraction: PositiveFraction = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.weighting: Weighting = weighting
        self.over_steps = over_steps
        self.step_fraction = step_fraction

    def training_items(
        self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int
    ) -> TrainingItems:
        """One item for each transition that is trained."""
        transitions = subsample_transitions(
            rollout, self.step_fraction, seed=seed, iteration=iteration
        )
        return transition_items(replace(rollout, transitions=transitions), model)

    def step_losses(self, step: Step, log_ratio: Tensor, batch: Batch) -> StepLosses:
        losses, metrics = super().step_losses(step, log_ratio, batch)
        t_next = batch.require_replayed().t_next
        return losses * step_weight(self.weighting, step.std, batch.t, t_next), metrics

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        found = super().loss(model, batch)
        scale = batch.items_per_sample if self.over_steps == "sum" else 1
        return replace(found, value=scale * found.value)
