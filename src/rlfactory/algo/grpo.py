"""Flow-GRPO (arXiv 2505.05470): policy gradient on a stochastic sampler's steps, by groups."""

import torch

from rlfactory.advantage.base import Advantage
from rlfactory.algo.base import Algorithm, Loss
from rlfactory.algo.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Batch, Outputs, Rollout, Taken, present, take
from rlfactory.types import Positive


class GRPO(Algorithm[ImageModel, Batch]):
    """With `r` the ratio of a step's likelihoods and A the advantage of the picture it led to,

        loss = mean max(-A r, -A clip(r, 1 - c, 1 + c)).

    The likelihood is the mean over dimensions, so `r` is the D-th root of the true
    ratio and c is tiny.
    """

    needs = "transitions"

    def __init__(
        self,
        dynamics: Dynamics,
        advantage: Advantage,
        *,
        clip_range: Positive = 1e-4,
    ) -> None:
        self.dynamics, self.advantage = dynamics, advantage
        self.clip_range = clip_range
        self.ratio_tolerance = clip_range / 10

    def items(self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int) -> Batch:
        """One item for every kept transition."""
        del seed, iteration
        kept = present(rollout.transitions, "transitions")
        samples, steps = kept.log_prob.shape
        sample = torch.arange(samples).repeat_interleave(steps)
        return Batch(
            x=kept.x.flatten(0, 1),
            t=kept.t.flatten(),
            x0=take(present(rollout.latents, "latents"), sample),
            sample=sample,
            condition=take(present(rollout.condition, "a condition"), sample),
            advantage=take(present(rollout.advantage, "advantages"), sample).to(model.device),
            taken=Taken(kept.t_next.flatten(), kept.next.flatten(0, 1), kept.log_prob.flatten()),
        )

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """Replay each step and weigh its new likelihood against the old."""
        taken = batch.replay()
        prediction = model.predict(batch.x, batch.t, batch.condition)
        step = self.dynamics.step(batch.x, prediction, batch.t, taken.t_next, next=taken.next)
        if step.log_prob is None:
            raise ValueError("GRPO needs dynamics with a log-probability")
        losses, ratio = clipped_surrogate(
            step.log_prob - taken.log_prob, batch.advantage, self.clip_range
        )
        metrics = {"loss/policy": losses.detach(), **ratio_metrics(ratio, self.clip_range)}
        return Loss(losses.mean(), Outputs(prediction, step), metrics)
