"""What the forward-process algorithms share: samples noised anew, and ratios of what they score."""

from collections.abc import Callable

import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.algo.times import Times, uniform_draws
from rlfactory.batch import Items
from rlfactory.model.base import ImageModel
from rlfactory.nest import present
from rlfactory.rollout import Rollout


def noised_items(
    rollout: Rollout,
    model: ImageModel,
    times: Times,
    sigmas: Tensor,
    *,
    shared_noise: bool = False,
    seed: int,
    iteration: int,
) -> Items:
    """Each sample noised at `times.count` times; the noise is its own, or its group's.

    `sigmas` `[n + 1]` are the times of the rollout, out of which discrete `times` choose.
    """
    latents = present(rollout.latents, "latents")
    draws = uniform_draws(times, rollout.index, rollout.groups, seed=seed, iteration=iteration)
    t = times.draw(draws, sigmas).to(latents.device)
    numbers = (rollout.groups if shared_noise else rollout.index).tolist()
    shape = [times.count, *latents.shape[1:]]
    eps = _once(numbers, lambda n: keyed.normal(seed, "noise", [iteration], n, shape))
    eps = eps.to(latents.device)
    repeated = latents.repeat_interleave(times.count, 0)
    x = model.forward_process.noise(repeated, eps.flatten(0, 1), t.flatten())
    return Items(
        x=x.view_as(eps),
        t=t,
        x0=latents,
        condition=present(rollout.condition, "a condition"),
        advantage=present(rollout.advantage, "advantages").to(latents.device),
        eps=eps,
        old=None if rollout.old is None else rollout.old.to(latents.device),
    )


def _once(numbers: list[int], draw: Callable[[list[int]], Tensor]) -> Tensor:
    """One draw for each distinct number, given to all that have it."""
    distinct = sorted(set(numbers))
    place = {number: row for row, number in enumerate(distinct)}
    return draw(distinct)[[place[number] for number in numbers]]


def log_ratio(scores: Tensor, old: Tensor | None) -> Tensor:
    """New scores over old, `[N]`; exactly 0, with the gradient of the new, where learning is
    on-policy and there are no old ones.
    """
    current = scores.detach()
    if old is None:
        return scores - current
    return scores - torch.where(old.isnan(), current, old)


def self_normalised(error: Tensor, floor: float = 1e-5) -> Tensor:
    """Mean square over mean magnitude, `[N]`; the gradient sees the square alone."""
    error = error.double().flatten(1)
    scale = error.detach().abs().mean(1).clamp(min=floor)
    return (error**2).mean(1) / scale
