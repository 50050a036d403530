"""Training items of the forward-process algorithms: final samples with fresh noise."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlfactory.algo.advantage.base import Advantage
from rlfactory.algo.base import Algorithm, Loss
from rlfactory.algo.ops.old_log_probs import log_ratio
from rlfactory.algo.ops.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.algo.times import Times, uniform_draws
from rlfactory.batch import Batch, Outputs, TrainingItems
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.utils import rng
from rlfactory.utils.pytree import index_rows, require, to_device


class ForwardAlgorithm(Algorithm[ImageModel, TrainingItems, Batch]):
    """An algorithm that trains on final samples, to which it adds noise again.

    Attributes:
        shared_noise: Whether the samples of a group are noised with the same eps.
    """

    requires = "forward_process"
    shared_noise: bool = False

    def __init__(
        self,
        advantage: Advantage | None = None,
        times: Times | None = None,
        sigmas: Tensor | None = None,
    ) -> None:
        self.advantage = advantage
        self.times = times
        self.sigmas = sigmas

    def training_items(self, rollout: Rollout, model: ImageModel, **key: int) -> TrainingItems:
        """Each sample at each of its T times, with its own noise or its group's."""
        items = noised_items(
            rollout,
            model,
            self.times,
            self.sigmas,
            shared_noise=self.shared_noise,
            **key,
        )
        return replace(items, whole_samples=self.one_ratio_per_sample)


class SurrogateAlgorithm(ForwardAlgorithm):
    """PPO's clipped loss with a pseudo-likelihood of noised samples, `surrogate`:

        r    = exp(log p - log p_old),
        loss = mean max(-A r, -A clip(r, 1 - c, 1 + c)).

    Args:
        shortcut: Whether the first update of an iteration skips the forward pass for the old
            log-likelihoods, as it is on-policy if the policy itself samples; published NFE counts
            include that pass.
    """

    has_surrogate_likelihood = True
    decided_by = {"skip_old_log_probs": ("shortcut", {True: True})}
    logs_surrogate: ClassVar[bool] = False
    clip_range: float | None

    def __init__(self, *given: Any, shortcut: bool = True, **options: Any) -> None:
        super().__init__(*given, **options)
        self.skip_old_log_probs = shortcut

    @abstractmethod
    def surrogate(self, model: ImageModel, batch: Batch, prediction: Tensor) -> Tensor:
        """The log-likelihoods `[N]` that predictions imply."""

    def log_likelihoods(self, model: ImageModel, batch: Batch) -> Tensor:
        return self.surrogate(model, batch, model.predict(batch.x, batch.t, batch.condition))

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """The class's formula; `outputs.log_ratio` is that of items, or of samples."""
        prediction = model.predict(batch.x, batch.t, batch.condition)
        log_probs = self.surrogate(model, batch, prediction)
        log_ratios, advantage = log_ratio(log_probs, batch.old_log_prob), batch.advantage
        if self.one_ratio_per_sample:
            log_ratios, advantage = batch.per_sample(log_ratios)
        losses, ratio = clipped_surrogate(log_ratios, advantage, self.clip_range)
        metrics = {"loss/policy": losses.detach(), **ratio_metrics(ratio, self.clip_range)}
        if self.logs_surrogate:
            metrics["surrogate/mean"] = log_probs.detach()
        return Loss(losses.mean(), Outputs(prediction, log_ratio=log_ratios), metrics)


def compared_predictions(
    model: ImageModel, batch: Batch, names: tuple[str, ...]
) -> tuple[Tensor, dict[str, Tensor]]:
    """The policy's predictions for a batch, and without gradient those of other weight sets."""
    others = {}
    for name in names:
        with torch.no_grad(), model.weights(name):
            others[name] = model.predict(batch.x, batch.t, batch.condition)
    return model.predict(batch.x, batch.t, batch.condition), others


def squared_error(model: ImageModel, batch: Batch, prediction: Tensor) -> Tensor:
    """`mean (prediction - target)^2` of each item over dimensions, `[N]` float64: what losses
    compare differs little.
    """
    target = model.forward_process.target(batch.x0, batch.require_eps(), batch.t)
    return (prediction.double() - target).pow(2).flatten(1).mean(1)


def noised_items(
    rollout: Rollout,
    model: ImageModel,
    times: Times,
    sigmas: Tensor,
    *,
    shared_noise: bool = False,
    seed: int,
    iteration: int,
) -> TrainingItems:
    """`x_t = alpha_t x0 + sigma_t eps` for each sample at each of T = `times.count` times.

    Args:
        rollout: B samples with `latents` `[B, C, H, W]`, `condition` and `advantage`.
        model: Its forward process says what `alpha_t` and `sigma_t` are.
        times: The choice of t.
        sigmas: The rollout's times `[n + 1]`, which discrete `times` choose from.
        shared_noise: Whether the samples of a group share eps; otherwise each has its own.
        seed: The run's seed.
        iteration: Number of the iteration, part of the random key.

    Returns:
        Items with `eps` `[B, T, C, H, W]`; their micro-batches make `x` of it.

    Raises:
        ValueError: The rollout has no latents, condition or advantages.
    """
    latents = require(rollout.latents, "latents")
    draws = uniform_draws(times, rollout.index, rollout.groups, seed=seed, iteration=iteration)
    t = to_device(times.draw(draws, sigmas), latents.device)
    keys = (rollout.groups if shared_noise else rollout.index).tolist()
    shape = [times.count, *latents.shape[1:]]
    distinct = sorted(set(keys))  # equal keys share a row, which is drawn and copied once
    on_gpu = latents.device.type == "cuda"
    noise = rng.normal(seed, "noise", [iteration], distinct, shape, pinned=on_gpu)
    row_of = {key: row for row, key in enumerate(distinct)}
    eps = index_rows(to_device(noise, latents.device), torch.tensor([row_of[k] for k in keys]))
    old = rollout.old_log_prob
    weight = rollout.penalty_weight
    return TrainingItems(
        x=None,  # as large as all noise together
        noise=model.forward_process.noise,
        t=t,
        x0=latents,
        condition=require(rollout.condition, "a condition"),
        advantage=to_device(require(rollout.advantage, "advantages"), latents.device),
        eps=eps,
        old_log_prob=None if old is None else to_device(old, latents.device),
        penalty_weight=None if weight is None else to_device(weight, latents.device),
    )


def self_normalised(error: Tensor, floor: float = 1e-5) -> Tensor:
    """`mean(d^2) / stop_gradient(max(mean |d|, floor))` over a sample's dimensions.

    Args:
        error: d, `[N, ...]`.
        floor: Lower bound of the denominator.

    Returns:
        `[N]` float64.
    """
    error = error.double().flatten(1)
    # detached: as published, the gradient is that of the square alone
    scale = error.detach().abs().mean(1).clamp(min=floor)
    return (error**2).mean(1) / scale
