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
    StepAlgorithm,
    replay_step,
    replayed_log_ratio,
    subsample_transitions,
    transition_items,
)
from rlfactory.algo.ops.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.batch import Batch, Outputs, TrainingItems
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.utils.types import Positive, PositiveFraction

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


class GRPO(StepAlgorithm):
    """With `r = p / p_old` of a step and A the advantage of the sample that it led to,

        loss = mean w max(-A r, -A clip(r, 1 - c, 1 + c)).

    log p is a mean over the D latent dimensions, so r is the D-th root of the true ratio, and c is
    of the order of 1e-4.

    Args:
        clip_range: c: clip of the ratio, whose log is a mean over dimensions.
        weighting: Weight w of a step, see `step_weight`: 1, 2.25 std, 2.25 std / sqrt(-dt).
        over_steps: Whether the losses of a sample's steps are averaged (DanceGRPO) or summed
            (DRLX).
        step_fraction: Share of a sample's transitions that is trained, drawn for each sample
            (DanceGRPO: 0.6).
    """

    def __init__(
        self,
        *given: Any,
        clip_range: Positive = 1e-4,
        weighting: Weighting = "none",
        over_steps: Literal["mean", "sum"] = "mean",
        step_fraction: PositiveFraction = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.clip_range = clip_range
        self.ratio_tolerance = clip_range / 10
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

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        replayed = batch.require_replayed()
        prediction, step, log_prob = replay_step(model, batch, self.dynamics)
        log_ratio, measured = replayed_log_ratio(log_prob, batch)
        losses, ratio = clipped_surrogate(log_ratio, batch.advantage, self.clip_range)
        losses = losses * step_weight(self.weighting, step.std, batch.t, replayed.t_next)
        scale = batch.items_per_sample if self.over_steps == "sum" else 1
        metrics = {"loss/policy": losses.detach(), **ratio_metrics(ratio, self.clip_range)}
        metrics |= measured
        return Loss(scale * losses.mean(), Outputs(prediction, step), metrics)
