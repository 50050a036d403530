"""Training items of the forward-process algorithms: final samples with fresh noise."""

from dataclasses import replace

import torch
from torch import Tensor

from rlfactory.algo.advantage.base import Advantage
from rlfactory.algo.base import Algorithm
from rlfactory.algo.times import Times, uniform_draws
from rlfactory.batch import Batch, TrainingItems
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

    def training_items(
        self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int
    ) -> TrainingItems:
        """Each sample at each of its T times, with its own noise or its group's."""
        items = noised_items(
            rollout,
            model,
            self.times,
            self.sigmas,
            shared_noise=self.shared_noise,
            seed=seed,
            iteration=iteration,
        )
        return replace(items, whole_samples=self.one_ratio_per_sample)


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
