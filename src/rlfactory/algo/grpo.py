"""Flow-GRPO (arXiv 2505.05470), DDPO (arXiv 2305.13301): policy gradient on a sampler's steps."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from rlfactory.advantage.base import Advantage
from rlfactory.algo.base import Algorithm, Loss
from rlfactory.algo.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.algo.transitions import replayed, thinned, transition_items
from rlfactory.batch import Batch, Items, Outputs
from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.types import Positive, PositiveFraction

Weighting = Literal["none", "tempflow", "tempflow_noise"]


def step_weight(weighting: Weighting, std: Tensor, t: Tensor, t_next: Tensor) -> Tensor:
    """How much a step's loss counts, `[N]`, from its deviation `std` `[N, 1, ...]`.

    `tempflow` is `2.25 std` (arXiv 2508.04324): the noisy steps, which decide the most, count more;
    `tempflow_noise` is its variant without the root of the step's length, `2.25 std / sqrt(-dt)`.
    """
    deviation = std.flatten()
    match weighting:
        case "none":
            return torch.ones_like(deviation)
        case "tempflow":
            return 2.25 * deviation
        case "tempflow_noise":
            return 2.25 * deviation / (t - t_next).sqrt()


class GRPO(Algorithm[ImageModel, Items, Batch]):
    """With `r` the ratio of a step's likelihoods and A the advantage of the picture it led to,

        loss = mean w max(-A r, -A clip(r, 1 - c, 1 + c)).

    The likelihood is the mean over dimensions, so `r` is the D-th root of the true ratio and c is
    tiny. `w` is 1, or TempFlow-GRPO's `step_weight`. `over_steps` says whether the losses of a
    sample's steps are averaged (DanceGRPO) or summed (DRLX), `step_fraction` how many of the steps
    that were drawn are trained, chosen anew for each sample (DanceGRPO: 0.6).
    """

    needs = "transitions"

    def __init__(
        self,
        dynamics: Dynamics,
        advantage: Advantage,
        *,
        clip_range: Positive = 1e-4,
        weighting: Weighting = "none",
        over_steps: Literal["mean", "sum"] = "mean",
        step_fraction: PositiveFraction = 1.0,
    ) -> None:
        self.dynamics = dynamics
        self.advantage = advantage
        self.clip_range = clip_range
        self.ratio_tolerance = clip_range / 10
        self.weighting: Weighting = weighting
        self.over_steps = over_steps
        self.step_fraction = step_fraction

    def items(self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int) -> Items:
        """One item for every transition that is trained."""
        steps = thinned(rollout, self.step_fraction, seed=seed, iteration=iteration)
        return transition_items(replace(rollout, transitions=steps), model)

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """Replay each step and weigh its new likelihood against the old."""
        taken = batch.replay()
        prediction, step, log_prob = replayed(model, batch, self.dynamics)
        losses, ratio = clipped_surrogate(
            log_prob - taken.log_prob, batch.advantage, self.clip_range
        )
        losses = losses * step_weight(self.weighting, step.std, batch.t, taken.t_next)
        scale = batch.each if self.over_steps == "sum" else 1
        metrics = {"loss/policy": losses.detach(), **ratio_metrics(ratio, self.clip_range)}
        return Loss(scale * losses.mean(), Outputs(prediction, step), metrics)
