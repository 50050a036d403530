"""What the forward-process algorithms share: samples noised anew, and ratios of what they score."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.algo.times import Times
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Items, Rollout, present

Shared = Literal["sample", "group", "batch"]


def sharing(rollout: Rollout, shared: Shared) -> list[int]:
    """A number for each sample; those with the same number get the same draws."""
    match shared:
        case "sample":
            return rollout.index.tolist()
        case "group":
            return rollout.groups.tolist()
        case "batch":
            return [0] * len(rollout)


def noised_items(
    rollout: Rollout,
    model: ImageModel,
    times: Times,
    sampled_at: Tensor | None,
    *,
    shared_noise: bool = False,
    seed: int,
    iteration: int,
) -> Items:
    """Each sample noised at `times.count` times; the noise is its own, or its group's.

    `sampled_at` `[n + 1]` are the times of the rollout, out of which discrete `times` choose.
    """
    latents = present(rollout.latents, "latents")
    t = _draw(times, sharing(rollout, times.shared), sampled_at, seed, iteration).to(latents.device)
    numbers = sharing(rollout, "group" if shared_noise else "sample")
    shape = [times.count, *latents.shape[1:]]
    eps = _once(numbers, lambda n: keyed.normal(seed, "noise", [iteration], n, shape))
    eps = eps.to(latents.device)
    repeated = latents.repeat_interleave(times.count, 0)
    x = model.forward_process.noise(repeated, eps.flatten(0, 1), t.flatten())
    return Items(
        x=x.unflatten(0, (-1, times.count)),
        t=t,
        x0=latents,
        condition=present(rollout.condition, "a condition"),
        advantage=present(rollout.advantage, "advantages").to(latents.device),
        eps=eps,
        old=None if rollout.old is None else rollout.old.to(latents.device),
    )


def _draw(
    times: Times, numbers: list[int], sampled_at: Tensor | None, seed: int, iteration: int
) -> Tensor:
    uniform = _once(
        numbers, lambda n: keyed.uniform(seed, "times", [iteration], n, [times.count + 1])
    )
    return times.draw(uniform, sampled_at)


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
