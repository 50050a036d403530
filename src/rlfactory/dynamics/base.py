"""The contract of a sampling step.

A step goes from `x` at time `t` to a normal distribution at `t_next` and then to one point of it,
either drawn (`noise` given) or already known (`next` given, when a rollout is replayed). Both go
through the same arithmetic, so before the first update the ratio of the two likelihoods is exactly
one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Step:
    """One step's distribution and the point taken: `next`, `mean` `[B, ...]`, `std` `[B, 1, ...]`.

    `log_prob` `[B]` is the *mean* log-density over a sample's dimensions, as in every published
    code: the sum overflows (16,384 dimensions turn a ratio of 1.01 into 6e70). It is None where the
    step is deterministic.
    """

    next: Tensor
    mean: Tensor
    std: Tensor
    log_prob: Tensor | None


class Dynamics(ABC):
    """One way to step. `log_prob`: whether steps have a likelihood; `process`: what it undoes,
    None for any. `decode`: what a last step that is stochastic leaves to make a picture of, the
    noisy sample or its last estimate of x0. `quiet_end`: whether a step to time 0 has no noise.
    """

    log_prob: ClassVar[bool]
    process: ClassVar[Literal["flow", "vp", "tokens"] | None]
    quiet_end: ClassVar[bool] = False
    decode: Literal["sample", "x0"] = "sample"

    @abstractmethod
    def step(
        self,
        x: Tensor,
        prediction: Tensor,
        t: Tensor,
        t_next: Tensor,
        *,
        noise: Tensor | None = None,
        next: Tensor | None = None,
    ) -> Step:
        """One step in float32.

        `x`, `prediction`, `noise` and `next` are `[B, C, H, W]`; times are `[B]`, in [0, 1].
        """


def column(t: Tensor, like: Tensor) -> Tensor:
    """Times `[B]` as float32 `[B, 1, ...]`, ready to multiply `like`."""
    return t.float().view(-1, *[1] * (like.ndim - 1))


def gaussian_log_prob(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Mean over dimensions of log N(x; mean, std^2), `[B]`."""
    density = -((x - mean) ** 2) / (2 * std**2) - torch.log(std) - 0.5 * math.log(2 * math.pi)
    return density.flatten(1).mean(1)


def quadratic_log_prob(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """`gaussian_log_prob` without its constants: the part that depends on the mean, `[B]`."""
    return -((x - mean) ** 2 / (2 * std**2)).flatten(1).mean(1)


def gaussian_step(
    mean: Tensor,
    std: Tensor,
    noise: Tensor | None,
    next: Tensor | None,
    log_prob: Callable[[Tensor, Tensor, Tensor], Tensor] = gaussian_log_prob,
) -> Step:
    """Draw from, or replay, a normal step; `log_prob(next, mean, std)` is what it is said to be."""
    if next is None:
        if noise is None:
            raise ValueError(
                "a stochastic step needs `noise` to draw with, or the `next` to replay"
            )
        next = mean + std * noise
    return Step(next, mean, std, log_prob(next, mean, std))
