"""Advantage Weighted Matching (AWM, arXiv 2509.25050): the matching loss as log-likelihood."""

import math
from typing import Any, Literal

from torch import Tensor

from rlfactory.algo.ops.noised_items import SurrogateAlgorithm, squared_error
from rlfactory.batch import Batch
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


class AWM(SurrogateAlgorithm):
    """`SurrogateAlgorithm` with the `pseudo_log_prob` of a sample at a time t and noise eps.

    Args:
        ratio: `exp_first`: a ratio for each time and sample. `sum_first`: one for each sample, of
            the log-likelihoods' mean over its times.
        clip_range: c; None: not clipped.
        behaviour: The weight set that samples.
        weighting: uniform | t | t2 | huber | ghuber: weight of the matching loss at time t.
        power: (0, 1]: exponent of ghuber.
    """

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
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.weighting: Weighting = weighting
        self.power = power
        self.ratio = ratio
        self.one_ratio_per_sample = ratio == "sum_first"
        self.clip_range = clip_range
        self.behaviour = behaviour

    def surrogate(self, model: ImageModel, batch: Batch, prediction: Tensor) -> Tensor:
        error = squared_error(model, batch, prediction)
        return pseudo_log_prob(error, batch.t.double(), self.weighting, self.power)
