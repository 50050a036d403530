"""DiffusionNFT (arXiv 2509.16117): from final samples alone, to the good and off the bad."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.algo.advantages import group_advantages
from rlfactory.algo.base import Algorithm, Loss
from rlfactory.algo.times import Times, uniform_draws
from rlfactory.model.base import ImageModel
from rlfactory.model.decay import Decay, old_policy_decay
from rlfactory.model.weights import OLD
from rlfactory.rollout import Batch, Outputs, Rollout, present, take
from rlfactory.types import Positive


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


def self_normalised(error: Tensor) -> Tensor:
    """Mean square over mean magnitude, `[B]`; the gradient sees the square alone."""
    error = error.double().flatten(1)
    scale = error.detach().abs().mean(1).clamp(min=1e-5)
    return (error**2).mean(1) / scale


class NFT(Algorithm[ImageModel, Batch]):
    """With `r` the optimality of a sample, beta the strength and c the advantage's clip,

        loss = c mean( r l+ / beta + (1 - r) l- / beta ).

    The `old` weight set samples; after each iteration it follows the policy with `old_decay`.
    At `v = v_old` the loss does not depend on the reward but its gradient does, by 2 r - 1.
    """

    needs = "forward_process"
    grouped = True
    behaviour = OLD

    def __init__(
        self,
        times: Times,
        sigmas: Tensor,
        *,
        beta: Positive = 1.0,
        advantage_clip: Positive = 5.0,
        std: Literal["group", "global"] = "global",
        unbiased: bool = False,
        eps: Positive = 1e-4,
        old_decay: Decay = "nft_1",
    ) -> None:
        self.times, self.sigmas = times, sigmas
        self.beta = beta
        self.advantage_clip = advantage_clip
        self.std: Literal["group", "global"] = std
        self.unbiased = unbiased
        self.eps = eps
        self.old_decay: Decay = old_decay

    def appraise(self, rollout: Rollout, rewards: Tensor) -> Rollout:
        """Group-relative; the clip is part of `optimality`."""
        advantage = group_advantages(
            rewards, rollout.groups, std=self.std, unbiased=self.unbiased, eps=self.eps
        )
        return replace(rollout, advantage=advantage)

    def items(self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int) -> Batch:
        """Each sample, noised anew at each of its times."""
        index, count = rollout.index.tolist(), self.times.count
        draws = uniform_draws(
            self.times, rollout.index, rollout.groups, seed=seed, iteration=iteration
        )
        t = self.times.draw(draws, self.sigmas).flatten().to(model.device)
        sample = torch.arange(len(rollout)).repeat_interleave(count)
        latents = present(rollout.latents, "latents")
        x0 = take(latents, sample)
        shape = [count, *latents.shape[1:]]
        eps = keyed.normal(seed, "noise", [iteration], index, shape).flatten(0, 1).to(model.device)
        return Batch(
            x=model.forward_process.noise(x0, eps, t),
            t=t,
            x0=x0,
            sample=sample,
            condition=take(present(rollout.condition, "a condition"), sample),
            advantage=take(present(rollout.advantage, "advantages"), sample).to(model.device),
        )

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """Compare the implied clean samples with the one drawn, against the old policy's."""
        with torch.no_grad(), model.weights(OLD):
            v_old = model.predict(batch.x, batch.t, batch.condition)
        v = model.predict(batch.x, batch.t, batch.condition)

        def to_x0(prediction: Tensor) -> Tensor:
            return model.forward_process.to_x0(batch.x, prediction, batch.t)

        good, bad = implicit_losses(v, v_old, batch.x0, to_x0, self.beta)
        r = optimality(batch.advantage, self.advantage_clip)
        losses = self.advantage_clip * (r * good + (1 - r) * bad) / self.beta
        moved = (v.detach() - v_old).flatten(1).pow(2).mean(1)
        metrics = {"loss/policy": losses.detach(), "kl/old": moved}
        return Loss(losses.mean(), Outputs(v), metrics)

    def after_iteration(self, model: ImageModel, step: int) -> dict[str, float]:
        """`old` moves to the policy, the faster the smaller the decay."""
        decay = old_policy_decay(self.old_decay, step)
        model.weights.update(OLD, decay)
        return {"old/decay": decay}
