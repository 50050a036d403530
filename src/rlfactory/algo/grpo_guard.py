"""GRPO-Guard (arXiv 2510.22319): GRPO on ratios without the bias that makes clipping one-sided."""

from typing import Any, Literal

from torch import Tensor

from rlfactory.algo.ops.step_replay import ClippedStepAlgorithm, StepLosses, old_step_mean
from rlfactory.batch import Batch
from rlfactory.dynamics.base import Step

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


class GRPOGuard(ClippedStepAlgorithm):
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
        bias: Bias = "sample",
        per_time: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.bias: Bias = bias
        self.per_time = per_time

    def step_losses(self, step: Step, log_ratio: Tensor, batch: Batch) -> StepLosses:
        replayed, mean_old = batch.require_replayed(), old_step_mean(step, batch)
        guarded = guarded_log_ratio(replayed.next, step.mean, mean_old, step.std, self.bias)
        losses, metrics = super().step_losses(step, guarded, batch)
        return losses / (batch.t - replayed.t_next) if self.per_time else losses, metrics
