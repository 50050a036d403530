"""The contract of a sampling step for images, and the normal steps that most samplers share.

A step leads from the state `x` at time `t` to a normal distribution over states at `t_next`, and
then to one of them: a new draw (`noise` given) or a known state (`next` given, when a rollout is
replayed). Both use the same arithmetic, so that before the first update the likelihood ratio is
exactly 1.

Constructor. Keyword-only parameters are the configuration (`conf/dynamics/`). The only run-time
argument is `process`, positional: the model's `ForwardProcess`.

`step` is called once for each stochastic step while sampling, and once for each training item in
`Algorithm.loss`. A sampler of normal steps implements `moments`, any other `step`. Samplers without
a likelihood may implement `ops.solver.Solver` instead. Token samplers (`token.py`) have the same
class attributes and their own `step`.

A static method `validate(options, run)` may check options before a run (`utils.types.Faults`).
"""

import math
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Step:
    """The distribution of one step, and the state that was reached.

    Attributes:
        next: State after the step, `[B, C, H, W]`.
        mean: Mean of the step's distribution, `[B, C, H, W]`.
        std: Its standard deviation, `[B, 1, 1, 1]`.
        log_prob: Log-density of `next`, *averaged* over a sample's dimensions, `[B]`; None for a
            deterministic step. Published code averages too, since a sum overflows: with 16,384
            dimensions a ratio of 1.01 in each makes 6e70.
    """

    next: Tensor
    mean: Tensor
    std: Tensor
    log_prob: Tensor | None


class Dynamics(ABC):
    """Base class of samplers that step. Class attributes must be literals: checks read them.

    Attributes:
        has_log_prob: Whether steps are stochastic and have a log-probability.
        process: The forward process that the steps reverse (`flow`: rectified flow, `vp`: variance
            preserving, `tokens`); None: either of the two image processes.
        step_form: Name of the step's formula, for algorithms that are derived for one of them.
        last_step_is_deterministic: Whether the step to time 0 has standard deviation 0.
        decode: What is decoded to an image if the last step is stochastic: the noisy `sample` or
            the last estimate of `x0`. An instance may set it.
    """

    has_log_prob: ClassVar[bool]
    process: ClassVar[Literal["flow", "vp", "tokens"] | None]
    last_step_is_deterministic: ClassVar[bool] = False
    step_form: ClassVar[str | None] = None
    decode: Literal["sample", "x0"] = "sample"

    def moments(
        self, x: Tensor, prediction: Tensor, t: Tensor, t_next: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean `[B, C, H, W]` and standard deviation `[B, 1, 1, 1]` of a normal step.

        The arguments are those of `step`, `x` and `prediction` in float32.
        """
        raise NotImplementedError

    def log_prob(self, x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """The log-probability `[B]` of the state `x` after a normal step."""
        return gaussian_log_prob(x, mean, std)

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
        """Take one step, in float32 whatever the dtype of the arguments.

        Args:
            x: State at time `t`, `[B, C, H, W]`.
            prediction: The network's output for `x` at `t` (velocity or noise), `[B, C, H, W]`.
            t: Time in [0, 1], `[B]`; 1 is noise.
            t_next: Time after the step, below `t`, `[B]`.
            noise: Standard normal numbers to draw with, `[B, C, H, W]`.
            next: The state that a replayed step reached, `[B, C, H, W]`; `noise` is then unused.

        Returns:
            The step's distribution and state, float32.

        Raises:
            ValueError: The step is stochastic, and neither `noise` nor `next` is given.
        """
        mean, std = self.moments(x.float(), prediction.float(), t, t_next)
        if not self.has_log_prob:
            return Step(mean if next is None else next, mean, std, None)
        return gaussian_step(mean, std, noise, next, self.log_prob)


def expand_like(t: Tensor, like: Tensor) -> Tensor:
    """Times `[B]` as float32 `[B, 1, ...]`, to broadcast against `like` `[B, ...]`."""
    return t.float().view(-1, *[1] * (like.ndim - 1))


def gaussian_log_prob(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """`log N(x; mean, std^2)`, averaged over a sample's dimensions, `[B]`."""
    density = -((x - mean) ** 2) / (2 * std**2) - torch.log(std) - 0.5 * math.log(2 * math.pi)
    return density.flatten(1).mean(1)


def quadratic_log_prob(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """`-(x - mean)^2 / (2 std^2)`, averaged: `gaussian_log_prob` without its constants, `[B]`."""
    return -((x - mean) ** 2 / (2 * std**2)).flatten(1).mean(1)


def gaussian_kl(mean: Tensor, other: Tensor, std: Tensor) -> Tensor:
    """KL divergence of normals with means `[B, C, H, W]` and a common std `[B, 1, 1, 1]`:
    `mean (mean - other)^2 / (2 std^2)` over a sample's dimensions, `[B]`.
    """
    return ((mean - other) / std).pow(2).flatten(1).mean(1) / 2


def gaussian_step(
    mean: Tensor,
    std: Tensor,
    noise: Tensor | None,
    next: Tensor | None,
    log_prob: Callable[[Tensor, Tensor, Tensor], Tensor] = gaussian_log_prob,
) -> Step:
    """Draw `mean + std noise` from `N(mean, std^2)`, or replay the draw `next`, `[B, C, H, W]`;
    ValueError without either. `log_prob` is a function of (next, mean, std).
    """
    if next is None:
        if noise is None:
            raise ValueError(
                "a stochastic step needs `noise` to draw with, or the `next` to replay"
            )
        next = mean + std * noise
    return Step(next, mean, std, log_prob(next, mean, std))
