"""Advantage Weighted Matching (arXiv 2509.25050): the pretraining loss as a likelihood."""

import math
from typing import Literal

from torch import Tensor

from rlfactory.advantage.base import Advantage
from rlfactory.algo.base import Algorithm, Loss
from rlfactory.algo.forward_process import log_ratio, noised_items
from rlfactory.algo.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.algo.times import Times
from rlfactory.batch import Batch, Items, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.types import Positive, PositiveFraction

Weighting = Literal["uniform", "t", "t2", "huber", "ghuber"]
TINY = 1e-10  # under the root, so that it has a slope at zero


def pseudo_log_prob(error: Tensor, t: Tensor, weighting: Weighting, power: float = 0.25) -> Tensor:
    """Log-likelihood, but for its scale, of a sample whose matching loss is `error` `[N]` at `t`.

    `uniform` -l, `t` -t l, `t2` -t^2 l, `huber` -t (sqrt(l + tiny) - sqrt(tiny)),
    `ghuber` -t ((l + tiny)^p - tiny^p) / p with p the `power`.
    """
    match weighting:
        case "uniform":
            return -error
        case "t":
            return -t * error
        case "t2":
            return -(t**2) * error
        case "huber":
            return -t * ((error + TINY).sqrt() - math.sqrt(TINY))
        case "ghuber":
            return -t * ((error + TINY).pow(power) - math.pow(TINY, power)) / power


class AWM(Algorithm[ImageModel, Items, Batch]):
    """PPO's clipped loss, the likelihood of a sample being its `pseudo_log_prob` at noise and time.

    `ratio`: one for each time and sample (`exp_first`), or one for each sample, of the mean over
    its times (`sum_first`). `behaviour` is the weight set that samples; if that is the policy, an
    iteration's first update is on-policy, and by the `shortcut` no second forward pass finds that
    its ratios are 1.
    """

    needs = "forward_process"
    surrogate = True

    def __init__(
        self,
        advantage: Advantage,
        times: Times,
        sigmas: Tensor,
        *,
        weighting: Weighting = "ghuber",
        power: PositiveFraction = 0.25,
        ratio: Literal["exp_first", "sum_first"] = "exp_first",
        clip_range: Positive | None = 1.0,
        behaviour: Literal["policy", "old"] = "policy",
        shortcut: bool = True,
    ) -> None:
        self.advantage = advantage
        self.times = times
        self.sigmas = sigmas
        self.weighting: Weighting = weighting
        self.power = power
        self.ratio = ratio
        self.clip_range = clip_range
        self.behaviour = behaviour
        self.shortcut = shortcut

    def items(self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int) -> Items:
        """Each sample, noised anew at each of its times."""
        return noised_items(rollout, model, self.times, self.sigmas, seed=seed, iteration=iteration)

    def scores(self, model: ImageModel, batch: Batch) -> Tensor:
        """Pseudo log-likelihoods `[N]`, in float64."""
        return self._scores(model, batch, model.predict(batch.x, batch.t, batch.condition))

    def _scores(self, model: ImageModel, batch: Batch, prediction: Tensor) -> Tensor:
        target = model.forward_process.target(batch.x0, batch.noise(), batch.t)
        error = (prediction.double() - target).pow(2).flatten(1).mean(1)
        return pseudo_log_prob(error, batch.t.double(), self.weighting, self.power)

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """Make samples likelier in proportion to their advantage, within the clip."""
        prediction = model.predict(batch.x, batch.t, batch.condition)
        change = log_ratio(self._scores(model, batch, prediction), batch.old)
        advantage = batch.advantage
        if self.ratio == "sum_first":
            change, advantage = batch.by_sample(change), batch.by_sample(advantage)
        losses, ratio = clipped_surrogate(change, advantage, self.clip_range)
        metrics = {"loss/policy": losses.detach(), **ratio_metrics(ratio, self.clip_range)}
        return Loss(losses.mean(), Outputs(prediction, log_ratio=change), metrics)
