"""GRPO-Guard (arXiv 2510.22319): ratios freed of the bias that makes clipping one-sided."""

from typing import Literal

from torch import Tensor

from rlfactory.advantage.base import Advantage
from rlfactory.algo.base import Algorithm, Loss
from rlfactory.algo.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.algo.transitions import replayed, transition_items
from rlfactory.batch import Batch, Items, Outputs
from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.nest import present
from rlfactory.rollout import Rollout
from rlfactory.types import Positive

Bias = Literal["sample", "batch"]


def guarded_log_ratio(
    x: Tensor, mean: Tensor, mean_old: Tensor, std: Tensor, bias: Bias = "sample"
) -> Tensor:
    """`(log r + b) std` with `b = mean (mu - mu_old)^2 / (2 std^2)`, `[N]`, in float64.

    Under the old policy the `log r` of a step to `x` is centred at `-b`, below zero; adding b
    centres it at zero, and the factor makes its spread the same at every noise level. `batch`
    averages b over the batch too, as the published code does by a slip.

    The sum is `mean (x - mu_old) (mu - mu_old) / std^2`: a difference of two likelihoods, which
    float32 knows to 1e-7, would be off by a tenth of the clip range.
    """
    moved, deviation = mean.double() - mean_old, std.double()
    centred = ((x - mean_old) * moved / deviation).flatten(1).mean(1)
    if bias == "sample":
        return centred
    own = (moved**2 / (2 * deviation**2)).flatten(1).mean(1)
    return centred + (own.mean() - own) * deviation.flatten()


class GRPOGuard(Algorithm[ImageModel, Items, Batch]):
    """GRPO's loss on guarded ratios, each step's divided by its length `-dt` (`per_time`).

    The division makes a step's gradient independent of the noise level. The means of the sampling
    policy's steps are kept in the rollout.
    """

    needs = "transitions"
    keeps_mean = True
    only_dynamics = "FlowSDE"

    def __init__(
        self,
        dynamics: Dynamics,
        advantage: Advantage,
        *,
        clip_range: Positive = 1e-4,
        bias: Bias = "sample",
        per_time: bool = True,
    ) -> None:
        self.dynamics = dynamics
        self.advantage = advantage
        self.clip_range = clip_range
        self.ratio_tolerance = clip_range / 10
        self.bias: Bias = bias
        self.per_time = per_time

    def items(self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int) -> Items:
        """One item for every kept transition, with the mean it was drawn about."""
        del seed, iteration
        return transition_items(rollout, model)

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """Replay each step and weigh its guarded ratio."""
        taken = batch.replay()
        prediction, step, _ = replayed(model, batch, self.dynamics)
        mean_old = present(taken.mean, "the means of the sampling policy's steps")
        guarded = guarded_log_ratio(taken.next, step.mean, mean_old, step.std, self.bias)
        losses, ratio = clipped_surrogate(guarded, batch.advantage, self.clip_range)
        if self.per_time:
            losses = losses / (batch.t - taken.t_next)
        metrics = {"loss/policy": losses.detach(), **ratio_metrics(ratio, self.clip_range)}
        return Loss(losses.mean(), Outputs(prediction, step), metrics)
