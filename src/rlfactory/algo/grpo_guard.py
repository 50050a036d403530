"""GRPO-Guard (arXiv 2510.22319): GRPO on ratios without the bias that makes clipping one-sided."""

from typing import Literal

from torch import Tensor

from rlfactory.algo.advantage.base import Advantage
from rlfactory.algo.base import Algorithm, Loss, OldLogProbs
from rlfactory.algo.ops.step_replay import (
    old_step_mean,
    replay_step,
    replayed_log_ratio,
    transition_items,
)
from rlfactory.algo.ops.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.batch import Batch, Outputs, TrainingItems
from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.utils.types import Positive

Bias = Literal["sample", "batch"]


def guarded_log_ratio(
    x: Tensor, mean: Tensor, mean_old: Tensor, std: Tensor, bias: Bias = "sample"
) -> Tensor:
    """`(log r + b) std` with `b = mean (mu - mu_old)^2 / (2 std^2)`.

    Under the old policy `log r` has mean `-b`, below zero, so that the upper clip hardly acts.
    Adding b centres it at zero; the factor std gives it the same spread at every noise level.

    Computed as the equal `mean (x - mu_old) (mu - mu_old) / std`: the difference of two float32
    log-likelihoods has an error of 1e-7, a tenth of the usual clip range.

    Args:
        x: The state after the step, `[N, ...]`.
        mean: mu, the mean of the policy's step, `[N, ...]`.
        mean_old: mu_old, that of the policy that sampled, `[N, ...]`.
        std: The step's standard deviation, `[N, 1, ...]`.
        bias: Whether b is that of each sample, or its mean over the batch, as the published code
            has it by mistake.

    Returns:
        `[N]` float64.
    """
    shift, deviation = mean.double() - mean_old, std.double()
    centred = ((x - mean_old) * shift / deviation).flatten(1).mean(1)
    if bias == "sample":
        return centred
    biases = (shift**2 / (2 * deviation**2)).flatten(1).mean(1)
    return centred + (biases.mean() - biases) * deviation.flatten()


class GRPOGuard(Algorithm[ImageModel, TrainingItems, Batch]):
    """GRPO's loss with `r = exp(guarded_log_ratio)`, each step's divided by its length `-dt`:

        loss = mean max(-A r, -A clip(r, 1 - c, 1 + c)) / (-dt).

    The division makes a step's gradient independent of the noise level.

    Args:
        dynamics: Flow-SDE; for other steps the ratio's scale is not derived.
        clip_range: c: clip of the guarded ratio; published 2e-6 to 4e-6, at 65,536 dimensions.
        per_time: Whether to divide by `-dt`.
        old_log_probs: Where mu_old comes from, as in GRPO.
        bias: sample | batch: what the bias is averaged over; published code: batch, by mistake.
    """

    requires = "transitions"
    stores_step_mean = True
    required_dynamics = "flow_sde"

    def __init__(
        self,
        dynamics: Dynamics | None = None,
        advantage: Advantage | None = None,
        *,
        clip_range: Positive = 1e-4,
        bias: Bias = "sample",
        per_time: bool = True,
        old_log_probs: OldLogProbs = "auto",
    ) -> None:
        self.dynamics = dynamics
        self.advantage = advantage
        self.clip_range = clip_range
        self.ratio_tolerance = clip_range / 10
        self.bias: Bias = bias
        self.per_time = per_time
        self.old_log_probs: OldLogProbs = old_log_probs

    def training_items(
        self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int
    ) -> TrainingItems:
        """One item for each transition, with the mean of the step that sampled it."""
        del seed, iteration
        return transition_items(rollout, model)

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """The class's formula over N replayed steps."""
        replayed = batch.require_replayed()
        prediction, step, log_prob = replay_step(model, batch, self.dynamics)
        mean_old = old_step_mean(step, batch)
        _, measured = replayed_log_ratio(log_prob.detach(), batch)
        log_ratios = guarded_log_ratio(replayed.next, step.mean, mean_old, step.std, self.bias)
        losses, ratio = clipped_surrogate(log_ratios, batch.advantage, self.clip_range)
        if self.per_time:
            losses = losses / (batch.t - replayed.t_next)
        metrics = {"loss/policy": losses.detach(), **ratio_metrics(ratio, self.clip_range)}
        metrics |= measured
        return Loss(losses.mean(), Outputs(prediction, step), metrics)
