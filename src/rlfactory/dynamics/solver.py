"""The contract of a solver: from noise to samples in one go, for those who need no likelihood.

Solvers work on the predicted x0, and on `lambda = log(alpha / sigma)`, which is infinite where
there is nothing but noise or nothing but sample. What they need of a step is therefore kept as
`exp(-h)`, which is 0 there, `h` being the rise of lambda.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlfactory.dynamics.process import Process

Predict = Callable[[Tensor, Tensor], Tensor]


class Solver(ABC):
    """A way through a whole schedule. It has no likelihood, and fits any process of noise."""

    log_prob: ClassVar[bool] = False
    process: ClassVar[None] = None

    @abstractmethod
    def solve(
        self, predict: Predict, x: Tensor, times: Tensor, generators: Sequence[torch.Generator]
    ) -> Tensor:
        """Samples `[B, ...]` in float32 from `x` at the first of the falling `times` `[n + 1]`.

        `predict(x, t)` is asked n times, for times `[B]`. New noise comes from one generator a
        sample, so a sample does not depend on its neighbours.
        """


@dataclass(frozen=True)
class Span:
    """What a step knows of the process: `alpha`, `sigma` where it ends, `shrink` (of sigma), and
    `decay`, exp(-h).
    """

    alpha: float
    sigma: float
    shrink: float
    decay: float

    @property
    def h(self) -> float:
        """The rise of lambda; infinite from pure noise and to a pure sample."""
        return -math.log(self.decay) if self.decay > 0 else math.inf


def intervals(process: Process, times: Tensor) -> list[Span]:
    """The n steps of a schedule `[n + 1]`."""
    alphas, sigmas = (values.double().tolist() for values in process.alpha_sigma(times.float()))
    found = []
    for i in range(len(times) - 1):
        shrink = sigmas[i + 1] / sigmas[i]
        found.append(Span(alphas[i + 1], sigmas[i + 1], shrink, shrink * alphas[i] / alphas[i + 1]))
    return found


def first_order(x: Tensor, x0: Tensor, step: Span, tau: float = 0.0) -> Tensor:
    """The mean at the step's end if x0 stayed as predicted; `tau` is the share of new noise.

    `sigma'/sigma exp(-tau^2 h) x + alpha' (1 - exp(-(1 + tau^2) h)) x0`. Without tau it is the
    step of the ODE.
    """
    noisy = step.shrink * math.pow(step.decay, tau**2)
    clean = step.alpha * (1 - math.pow(step.decay, 1 + tau**2))
    return noisy * x + clean * x0


def at(t: Tensor, x: Tensor) -> Tensor:
    """One time, for every sample of `x`."""
    return t.float().to(x.device).expand(len(x))
