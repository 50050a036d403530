"""DiffusionNFT (arXiv 2509.16117): from final samples alone, to the good and off the bad."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from rlfactory.advantage.base import Advantage
from rlfactory.algo.base import Algorithm, Loss
from rlfactory.algo.forward_process import noised_items, self_normalised
from rlfactory.algo.times import Times
from rlfactory.batch import Batch, Items, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.model.weights import OLD
from rlfactory.rollout import Rollout
from rlfactory.types import Positive

AdvantageMode = Literal["all", "positive_only", "negative_only", "one_only", "binary"]


def graded(advantage: Tensor, mode: AdvantageMode) -> Tensor:
    """What is left of advantages `[N]`: all, one side, or 1 for the good (and -1 for the bad)."""
    match mode:
        case "all":
            return advantage
        case "positive_only":
            return advantage.clamp(min=0)
        case "negative_only":
            return advantage.clamp(max=0)
        case "one_only":
            return (advantage > 0).to(advantage)
        case "binary":
            return advantage.sign()


def optimality(advantage: Tensor, advantage_clip: float) -> Tensor:
    """The probability `r` in [0, 1] that a sample is a good one; 1/2 for an average one."""
    clipped = advantage.clamp(-advantage_clip, advantage_clip)
    return clipped / (2 * advantage_clip) + 0.5


def implicit_losses(
    v: Tensor, v_old: Tensor, x0: Tensor, to_x0: Callable[[Tensor], Tensor], beta: float
) -> tuple[Tensor, Tensor]:
    """Losses `[B]` of the implicit positive and negative policies, each scaled by its own error:

    v+ = beta v + (1 - beta) v_old,   v- = (1 + beta) v_old - beta v,
    l  = mean (x0_hat - x0)^2 / w,    w = stop_gradient(mean |x0_hat - x0|), at least 1e-5.
    """
    positive = beta * v + (1 - beta) * v_old
    negative = (1 + beta) * v_old - beta * v
    return self_normalised(to_x0(positive) - x0), self_normalised(to_x0(negative) - x0)


class NFT(Algorithm[ImageModel, Items, Batch]):
    """With `r` the optimality of a sample, beta the strength and c the advantage's clip,

        loss = c mean( r l+ / beta + (1 - r) l- / beta ).

    The `old` weight set samples, and follows the policy as the root's `old` says. At `v = v_old`
    the loss does not depend on the reward but its gradient does, by 2 r - 1.
    """

    needs = "forward_process"
    compares = ("old",)
    behaviour = OLD

    def __init__(
        self,
        advantage: Advantage,
        times: Times,
        sigmas: Tensor,
        *,
        beta: Positive = 1.0,
        advantage_clip: Positive = 5.0,
        advantage_mode: AdvantageMode = "all",
    ) -> None:
        self.advantage = advantage
        self.times = times
        self.sigmas = sigmas
        self.beta = beta
        self.advantage_clip = advantage_clip
        self.advantage_mode: AdvantageMode = advantage_mode

    def items(self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int) -> Items:
        """Each sample, noised anew at each of its times."""
        return noised_items(rollout, model, self.times, self.sigmas, seed=seed, iteration=iteration)

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """Compare the implied clean samples with the one drawn, against the old policy's."""
        with torch.no_grad(), model.weights(OLD):
            v_old = model.predict(batch.x, batch.t, batch.condition)
        v = model.predict(batch.x, batch.t, batch.condition)

        def to_x0(prediction: Tensor) -> Tensor:
            return model.forward_process.to_x0(batch.x, prediction, batch.t)

        good, bad = implicit_losses(v, v_old, batch.x0, to_x0, self.beta)
        r = optimality(graded(batch.advantage, self.advantage_mode), self.advantage_clip)
        losses = self.advantage_clip * (r * good + (1 - r) * bad) / self.beta
        moved = (v.detach() - v_old).flatten(1).pow(2).mean(1)
        metrics = {"loss/policy": losses.detach(), "kl/old": moved}
        return Loss(losses.mean(), Outputs(v, others={OLD: v_old}), metrics)
