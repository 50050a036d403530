"""The contract of a solver: from noise to samples in one call, without step likelihoods.

Solvers work on the predicted x0 and on the half log-SNR `lambda = log(alpha / sigma)`, whose rise
over a step is h. Lambda is infinite at pure noise and at a clean sample, so `exp(-h)` is stored
instead, which is 0 there.

Constructor. Keyword-only parameters are the configuration (`conf/dynamics/`); the only run-time
argument is `process`, positional: the model's `ForwardProcess`. `solve` is called for each batch
that is drawn, in training and evaluation.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlfactory.dynamics.ops.forward_process import ForwardProcess

Predict = Callable[[Tensor, Tensor], Tensor]


class Solver(ABC):
    """Base class of samplers that need the whole schedule, such as multistep methods.

    Attributes:
        has_log_prob: False: steps have no log-probability.
        process: None: any forward process.
        is_multistep: True: a step depends on those before it, so a part of them can't be repeated.
    """

    has_log_prob: ClassVar[bool] = False
    process: ClassVar[None] = None
    is_multistep: ClassVar[bool] = True

    @abstractmethod
    def solve(
        self, predict: Predict, x: Tensor, times: Tensor, generators: Sequence[torch.Generator]
    ) -> Tensor:
        """Draw B samples.

        Args:
            predict: The network: `(x [B, C, H, W], t [B])` to a prediction; called once a step.
            x: Noise at the first of `times`, `[B, C, H, W]`.
            times: The schedule, falling, `[n + 1]`.
            generators: One for each sample, for new noise, so that a sample does not depend on the
                batch that it is in.

        Returns:
            Samples at the last of `times`, `[B, C, H, W]` float32.
        """


@dataclass(frozen=True)
class StepCoefficients:
    """The forward process's coefficients over one step.

    Attributes:
        alpha: Coefficient of x0 at the step's end.
        sigma: Coefficient of the noise at the step's end.
        sigma_ratio: sigma at the step's end over sigma at its start.
        decay: `exp(-h)`.
    """

    alpha: float
    sigma: float
    sigma_ratio: float
    decay: float

    @property
    def h(self) -> float:
        """The rise of lambda; infinite from pure noise and to a clean sample."""
        return -math.log(self.decay) if self.decay > 0 else math.inf


def step_coefficients(process: ForwardProcess, times: Tensor) -> list[StepCoefficients]:
    """Coefficients of the n steps of a schedule `[n + 1]`."""
    alphas, sigmas = (values.double().tolist() for values in process.alpha_sigma(times.float()))
    steps = []
    for i in range(len(times) - 1):
        ratio = sigmas[i + 1] / sigmas[i]
        decay = ratio * alphas[i] / alphas[i + 1]
        steps.append(StepCoefficients(alphas[i + 1], sigmas[i + 1], ratio, decay))
    return steps


def first_order_step(x: Tensor, x0: Tensor, step: StepCoefficients, tau: float = 0.0) -> Tensor:
    """Mean `[B, C, H, W]` of a first-order step from the state `x`, which takes the predicted `x0`
    as constant:

        sigma'/sigma exp(-tau^2 h) x + alpha' (1 - exp(-(1 + tau^2) h)) x0.

    With the noise level `tau` 0 it is the step of the ODE.
    """
    x_coefficient = step.sigma_ratio * math.pow(step.decay, tau**2)
    x0_coefficient = step.alpha * (1 - math.pow(step.decay, 1 + tau**2))
    return x_coefficient * x + x0_coefficient * x0


def expand_time(t: Tensor, x: Tensor) -> Tensor:
    """A scalar time as float32 `[B]`, on the device of `x` `[B, ...]`."""
    return t.float().to(x.device).expand(len(x))
