"""GRPO-Guard (arXiv 2510.22319): GRPO on ratios without the bias that makes clipping one-sided."""

from typing import Any, Literal

from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.algo.ops.step_replay import (
    StepAlgorithm,
    old_step_mean,
    replay_step,
    replayed_log_ratio,
)
from rlfactory.algo.ops.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
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


class GRPOGuard(StepAlgorithm):
    """GRPO's loss with `r = exp(guarded_log_ratio)`, each step's divided by its length `-dt`:

        loss = mean max(-A r, -A clip(r, 1 - c, 1 + c)) / (-dt).

    The division makes a step's gradient independent of the noise level.

    Args:
        dynamics: Flow-SDE; for other steps the ratio's scale is not derived.
        clip_range: c: clip of the guarded ratio; published 2e-6 to 4e-6, at 65,536 dimensions.
        per_time: Whether to divide by `-dt`.
        bias: sample | batch: what the bias is averaged over; published code: batch, by mistake.
    """

    stores_step_mean = True
    required_dynamics = "flow_sde"

    def __init__(
        self,
        *given: Any,
        clip_range: Positive = 1e-4,
        bias: Bias = "sample",
        per_time: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.clip_range = clip_range
        self.ratio_tolerance = clip_range / 10
        self.bias: Bias = bias
        self.per_time = per_time

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
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
