"""SA-Solver (arXiv 2309.05019), the stochastic multistep solver of AWM."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from rlfactory.dynamics.process import Process
from rlfactory.dynamics.solver import Predict, Solver, Span, at, first_order, intervals
from rlfactory.types import Fraction, NonNegative


class SASolver(Solver):
    """Predict, evaluate, correct (PEC), one evaluation a step, on the predicted x0.

    Steps that end at a time within [`low`, `high`] draw noise: `tau` 0 solves the ODE, 1 the
    reverse SDE. Order 2 takes the slope of x0 from the last two evaluations, order 1 none; a
    corrector of order 0 is left out. As published, the first step is not corrected, and the last
    ends in the prediction. `halve_last` is AWM's repair of SD3's schedule, whose last but one step
    is too long for a slope.
    """

    def __init__(
        self,
        process: Process,
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
        """Samples `[B, ...]`, with one generator for the noise of each."""
        times = halved_last(times) if self.halve_last else times
        steps = intervals(self.forward_process, times)
        start = predicted = x.float()
        fresh = torch.zeros_like(start)
        known: list[Tensor] = []  # the predicted x0 at every time so far
        for i, step in enumerate(steps):
            t = at(times[i], start)
            known.append(self.forward_process.to_x0(predicted, predict(predicted, t).float(), t))
            if i > 1 and self.corrector_order:
                start = self._correct(start, known, steps[i - 1], self._tau(times[i])) + fresh
            else:
                start = predicted
            tau = self._tau(times[i + 1])
            fresh = _noise(start, step, tau, generators)
            straight = i == len(steps) - 1
            predicted = self._predict(start, known, steps[: i + 1], tau, straight) + fresh
        return predicted

    def _tau(self, t: Tensor) -> float:
        return self.tau if self.low <= float(t) <= self.high else 0.0

    def _predict(
        self, x: Tensor, known: list[Tensor], steps: list[Span], tau: float, straight: bool
    ) -> Tensor:
        """To the end of the last of `steps`; `straight`: as if x0 stayed as it is."""
        mean = first_order(x, known[-1], steps[-1], tau)
        if straight or self.predictor_order == 1 or len(known) == 1:
            return mean
        rise = steps[-1].h / steps[-2].h * (known[-1] - known[-2])
        return mean + _slope(rise, steps[-1], tau)

    def _correct(self, x: Tensor, known: list[Tensor], step: Span, tau: float) -> Tensor:
        """The last step again, now that x0 is known at its end too."""
        if self.corrector_order == 1:
            return first_order(x, known[-1], step, tau)
        rise = known[-1] - known[-2]
        return first_order(x, known[-2], step, tau) + _slope(rise, step, tau)


def halved_last(times: Tensor) -> Tensor:
    """A schedule `[n + 1]` whose last time but one is half of the time before it."""
    if len(times) < 3:
        return times
    return torch.cat([times[:-2], times[-3:-2] / 2, times[-1:]])


def _slope(rise: Tensor, step: Span, tau: float) -> Tensor:
    """What x0 adds that rises by `rise` during a step: `alpha' (1 + tau^2) h / 2 rise`.

    This is the paper's integral to the order that counts, as both published codes have it
    (its appendix D).
    """
    return step.alpha * (1 + tau**2) * step.h / 2 * rise


def _noise(like: Tensor, step: Span, tau: float, generators: Sequence[torch.Generator]) -> Tensor:
    """`sigma' sqrt(1 - exp(-2 tau^2 h))` times fresh noise; nothing is drawn where tau is 0."""
    if tau == 0:
        return torch.zeros_like(like)
    drawn = [torch.randn(like.shape[1:], generator=g, device=g.device) for g in generators]
    scale = step.sigma * math.sqrt(1 - math.pow(step.decay, 2 * tau**2))
    return scale * torch.stack(drawn).to(like.device)
