"""Centered Reward Distillation (CRD, arXiv 2603.14128): the policy's implicit rewards of a group
are to differ as its rewards do.
"""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from rlfactory.algo.base import Loss
from rlfactory.algo.nft import optimality_probability
from rlfactory.algo.ops.groups import GroupAlgorithm, cell_means
from rlfactory.algo.ops.noised_items import compared_predictions, self_normalised
from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import OLD
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require
from rlfactory.utils.types import Fraction, Positive


def matching_loss(
    implicit: Tensor, reward: Tensor, beta: float, kind: Literal["mse", "bce"]
) -> Tensor:
    """The loss of centered implicit rewards q and rewards R, each `[N]`:

    mse  (beta q - R)^2
    bce  cross-entropy of sigmoid(beta q) with sigmoid(R)
    """
    if kind == "mse":
        return (beta * implicit - reward).square()
    target = reward.sigmoid()
    return binary_cross_entropy_with_logits(beta * implicit, target, reduction="none")


class CRD(GroupAlgorithm):
    """With r of NFT's `optimality_probability`, in [0, 1], l the matching losses of velocities and
    q = l_old - l, a sample's implicit reward up to a constant of its prompt,

        loss = c / beta mean over groups of (beta (q - mean q) - (r - mean r))^2,

    the means over the group at one time index, that of q without gradient. The weight set `ema`
    samples, so that it does not follow the moving reference `old`; both follow the policy as the
    keys of these names say.

    Args:
        beta: Scale of the implicit reward.
        advantage_clip: c, the limit of the advantage's magnitude.
        kind: mse | bce: see `matching_loss`.
        adaptive: Whether l is divided by its mean magnitude, as in NFT.
        temperature: null: plain means. T: the mean of two losses, whose means are weighted by
            softmax(r / T) and softmax(-r / T).
        adaptive_penalty: Whether a sample's weight in the regularizer's penalty is
            `least + r (1 - least)`, so that well-rewarded samples stay near the reference.
        least: See `adaptive_penalty`; published: 1e-4 divided by the coefficient.
        behaviour: The weight set that samples.
        shared_noise: Whether the samples of a group are noised with the same eps.
    """

    compared_weight_sets: tuple[str, ...] = ("old",)

    def __init__(
        self,
        *given: Any,
        beta: Positive = 1.0,
        advantage_clip: Positive = 5.0,
        kind: Literal["mse", "bce"] = "mse",
        adaptive: bool = True,
        temperature: Positive | None = None,
        adaptive_penalty: bool = True,
        least: Fraction = 1e-3,
        behaviour: Literal["ema", "old", "policy"] = "ema",
        shared_noise: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.beta, self.advantage_clip = beta, advantage_clip
        self.kind: Literal["mse", "bce"] = kind
        self.adaptive, self.temperature = adaptive, temperature
        self.adaptive_penalty, self.least = adaptive_penalty, least
        self.behaviour = behaviour
        self.shared_noise = shared_noise

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """Advantages, and with `adaptive_penalty` each sample's weight in the penalty."""
        rollout = super().compute_advantages(rollout, main)
        if not self.adaptive_penalty:
            return rollout
        r = optimality_probability(require(rollout.advantage, "advantages"), self.advantage_clip)
        weight, given = self.least + r * (1 - self.least), rollout.penalty_weight
        return replace(rollout, penalty_weight=weight if given is None else weight * given)

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """The class's formula; the metric `preference/implicit` is q."""
        prediction, others = compared_predictions(model, batch, self.compared_weight_sets)
        target = model.forward_process.target(batch.x0, batch.require_eps(), batch.t).double()
        error, error_old = (self._matching(v.double() - target) for v in (prediction, others[OLD]))
        q = error_old - error
        r = optimality_probability(batch.advantage, self.advantage_clip).double()
        # logarithms of the weights of the means over a group; None: equal ones
        weights = [None] if (t := self.temperature) is None else [r / t, -r / t]
        found = [
            matching_loss(
                q - cell_means(q.detach(), batch, log_weight),
                r - cell_means(r, batch, log_weight),
                self.beta,
                self.kind,
            )
            for log_weight in weights
        ]
        losses = self.advantage_clip / self.beta * torch.stack(found).mean(0)
        metrics = {"loss/policy": losses.detach(), "preference/implicit": q.detach()}
        return Loss(losses.mean(), Outputs(prediction, by_weight_set=others), metrics)

    def _matching(self, error: Tensor) -> Tensor:
        return self_normalised(error) if self.adaptive else error.pow(2).flatten(1).mean(1)
