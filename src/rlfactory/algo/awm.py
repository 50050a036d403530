"""Advantage Weighted Matching (AWM, arXiv 2509.25050): the matching loss as log-likelihood."""

import math
from typing import Any, Literal

from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.algo.ops.noised_items import ForwardAlgorithm
from rlfactory.algo.ops.old_log_probs import log_ratio
from rlfactory.algo.ops.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.utils.types import Positive, PositiveFraction

Weighting = Literal["uniform", "t", "t2", "huber", "ghuber"]
TINY = 1e-10  # under the root, whose slope at 0 would be infinite


def pseudo_log_prob(error: Tensor, t: Tensor, weighting: Weighting, power: float = 0.25) -> Tensor:
    """Log-likelihood, up to scale, of a sample with matching loss l at time t.

        uniform  -l
        t        -t l
        t2       -t^2 l
        huber    -t (sqrt(l + tiny) - sqrt(tiny))
        ghuber   -t ((l + tiny)^p - tiny^p) / p

    Args:
        error: l, `[N]`.
        t: `[N]`, in [0, 1].
        weighting: The row of the table.
        power: p of `ghuber`.

    Returns:
        `[N]`, at most 0.
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


class AWM(ForwardAlgorithm):
    """PPO's clipped loss with the pseudo-likelihood of a sample at a time t and noise eps:

        r    = exp(pseudo_log_prob - pseudo_log_prob_old),
        loss = mean max(-A r, -A clip(r, 1 - c, 1 + c)).

    Args:
        ratio: `exp_first`: a ratio for each time and sample. `sum_first`: one for each sample, of
            the log-likelihoods' mean over its times.
        clip_range: c; None: not clipped.
        behaviour: The weight set that samples.
        shortcut: Whether the first update of an iteration skips the forward pass for the old
            log-likelihoods, as it is on-policy if the policy itself samples.
        weighting: uniform | t | t2 | huber | ghuber: weight of the matching loss at time t.
        power: (0, 1]: exponent of ghuber.
    """

    has_surrogate_likelihood = True
    decided_by = {
        "one_ratio_per_sample": ("ratio", {"sum_first": True}),
        "skip_old_log_probs": ("shortcut", {True: True}),
    }

    def __init__(
        self,
        *given: Any,
        weighting: Weighting = "ghuber",
        power: PositiveFraction = 0.25,
        ratio: Literal["exp_first", "sum_first"] = "exp_first",
        clip_range: Positive | None = 1.0,
        behaviour: Literal["policy", "old"] = "policy",
        shortcut: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.weighting: Weighting = weighting
        self.power = power
        self.ratio = ratio
        self.one_ratio_per_sample = ratio == "sum_first"
        self.clip_range = clip_range
        self.behaviour = behaviour
        self.skip_old_log_probs = shortcut

    def log_likelihoods(self, model: ImageModel, batch: Batch) -> Tensor:
        """Pseudo log-likelihoods `[N]` float64."""
        return self._pseudo_log_probs(
            model, batch, model.predict(batch.x, batch.t, batch.condition)
        )

    def _pseudo_log_probs(self, model: ImageModel, batch: Batch, prediction: Tensor) -> Tensor:
        # float64 as published: the ratio is of a small difference of two losses
        target = model.forward_process.target(batch.x0, batch.require_eps(), batch.t)
        error = (prediction.double() - target).pow(2).flatten(1).mean(1)
        return pseudo_log_prob(error, batch.t.double(), self.weighting, self.power)

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """The class's formula; `outputs.log_ratio` is that of items, or of samples."""
        prediction = model.predict(batch.x, batch.t, batch.condition)
        log_probs = self._pseudo_log_probs(model, batch, prediction)
        log_ratios = log_ratio(log_probs, batch.old_log_prob)
        advantage = batch.advantage
        if self.ratio == "sum_first":
            log_ratios, advantage = batch.per_sample(log_ratios)
        losses, ratio = clipped_surrogate(log_ratios, advantage, self.clip_range)
        metrics = {"loss/policy": losses.detach(), **ratio_metrics(ratio, self.clip_range)}
        return Loss(losses.mean(), Outputs(prediction, log_ratio=log_ratios), metrics)
