"""SA-Solver (arXiv 2309.05019), the stochastic multistep sampler of AWM."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from rlfactory.dynamics.ops.forward_process import ForwardProcess
from rlfactory.dynamics.ops.solver import (
    Predict,
    Solver,
    StepCoefficients,
    expand_time,
    first_order_step,
    step_coefficients,
)
from rlfactory.utils.pytree import to_device
from rlfactory.utils.types import Fraction, NonNegative


class SASolver(Solver):
    """Predictor-corrector (predict, evaluate, correct: PEC) on the predicted x0.

    One network evaluation a step. As published, the first step is not corrected, and the last one
    is of first order.

    Args:
        tau: Noise level of the steps that end at a time within [low, high]; 0 solves the ODE, 1 the
            reverse SDE. Other steps solve the ODE.
        predictor_order: 2 extrapolates x0 by the slope of the last two predictions, 1 takes it as
            constant.
        corrector_order: The same for the corrector; 0 leaves it out.
        halve_last: Whether the last time above 0 is replaced by half the time before it; AWM's
            repair of SD3's schedule, whose last step but one is too long for a slope.
        low: [0, 1]: steps that end below this time draw no noise.
        high: [0, 1]: steps that end above this time draw no noise.
    """

    def __init__(
        self,
        process: ForwardProcess,
        *,
        tau: NonNegative = 0.4,
        predictor_order: Literal[1, 2] = 2,
        corrector_order: Literal[0, 1, 2] = 2,
        low: Fraction = 0.3,
        high: Fraction = 0.9,
        halve_last: bool = False,
    ) -> None:
        self.forward_process = process
        self.tau, self.low, self.high = tau, low, high
        self.predictor_order = predictor_order
        self.corrector_order = corrector_order
        self.halve_last = halve_last

    def solve(
        self, predict: Predict, x: Tensor, times: Tensor, generators: Sequence[torch.Generator]
    ) -> Tensor:
        """Samples `[B, C, H, W]`; sample b takes its noise from `generators[b]`."""
        times = halved_last(times) if self.halve_last else times
        steps = step_coefficients(self.forward_process, times)
        # `corrected` is the state at times[i], `predicted` the estimate that the network saw
        corrected = predicted = x.float()
        noise = torch.zeros_like(corrected)
        x0s: list[Tensor] = []  # the predicted x0 at each time so far
        for i, step in enumerate(steps):
            t = expand_time(times[i], corrected)
            x0s.append(self.forward_process.to_x0(predicted, predict(predicted, t).float(), t))
            if i > 1 and self.corrector_order:
                # the noise of the step that is corrected stays the same
                corrected = self._correct(corrected, x0s, steps[i - 1], self._tau(times[i])) + noise
            else:
                corrected = predicted
            tau = self._tau(times[i + 1])
            noise = _noise(corrected, step, tau, generators)
            is_last = i == len(steps) - 1
            predicted = self._predict(corrected, x0s, steps[: i + 1], tau, is_last) + noise
        return predicted

    def _tau(self, t: Tensor) -> float:
        return self.tau if self.low <= float(t) <= self.high else 0.0

    def _predict(
        self,
        x: Tensor,
        x0s: list[Tensor],
        steps: list[StepCoefficients],
        tau: float,
        is_last: bool,
    ) -> Tensor:
        """Mean of the state at the end of the last of `steps`."""
        mean = first_order_step(x, x0s[-1], steps[-1], tau)
        if is_last or self.predictor_order == 1 or len(x0s) == 1:
            return mean
        rise = steps[-1].h / steps[-2].h * (x0s[-1] - x0s[-2])
        return mean + _slope_term(rise, steps[-1], tau)

    def _correct(self, x: Tensor, x0s: list[Tensor], step: StepCoefficients, tau: float) -> Tensor:
        """Mean of the state at the end of `step`, repeated with the x0 predicted at its end."""
        if self.corrector_order == 1:
            return first_order_step(x, x0s[-1], step, tau)
        rise = x0s[-1] - x0s[-2]
        return first_order_step(x, x0s[-2], step, tau) + _slope_term(rise, step, tau)


def halved_last(times: Tensor) -> Tensor:
    """The schedule `[n + 1]` with its last time but one set to half of the time before it."""
    if len(times) < 3:
        return times
    return torch.cat([times[:-2], times[-3:-2] / 2, times[-1:]])


def _slope_term(rise: Tensor, step: StepCoefficients, tau: float) -> Tensor:
    """`alpha' (1 + tau^2) h / 2 rise`, the term of an x0 that changes by `rise` over the step.

    The paper's integral to second order (its appendix D), as in both published codes.
    """
    return step.alpha * (1 + tau**2) * step.h / 2 * rise


def _noise(
    like: Tensor, step: StepCoefficients, tau: float, generators: Sequence[torch.Generator]
) -> Tensor:
    """`sigma' sqrt(1 - exp(-2 tau^2 h))` times new noise; with tau 0 zeros, and no draw."""
    if tau == 0:
        return torch.zeros_like(like)
    drawn = [torch.randn(like.shape[1:], generator=g, device=g.device) for g in generators]
    scale = step.sigma * math.sqrt(1 - math.pow(step.decay, 2 * tau**2))
    return scale * to_device(torch.stack(drawn), like.device)
