"""DPM-Solver++ 2M (arXiv 2211.01095, algorithm 2), the deterministic sampler of DiffusionNFT."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from rlfactory.dynamics.ops.forward_process import ForwardProcess
from rlfactory.dynamics.ops.solver import (
    Predict,
    Solver,
    expand_time,
    first_order_step,
    step_coefficients,
)
from rlfactory.utils.pytree import to_device


class DPMSolver(Solver):
    """The second-order multistep method in its midpoint form, which extrapolates x0 by half a step:

        x' = sigma'/sigma x + alpha' (1 - exp(-h)) (x0 + h / (2 h_prev) (x0 - x0_prev)).

    The first and the last step are of first order.

    Args:
        order: 1 makes all steps first-order ODE steps (for a flow: Euler's).
    """

    def __init__(self, process: ForwardProcess, *, order: Literal[1, 2] = 2) -> None:
        self.forward_process = process
        self.order = order

    def solve(
        self, predict: Predict, x: Tensor, times: Tensor, generators: Sequence[torch.Generator]
    ) -> Tensor:
        """Samples `[B, C, H, W]`; `generators` are unused."""
        steps = step_coefficients(self.forward_process, times)
        times = to_device(times, x.device)
        x, x0_prev = x.float(), None
        for i, step in enumerate(steps):
            t = expand_time(times[i], x)
            x0 = self.forward_process.to_x0(x, predict(x, t).float(), t)
            extrapolated = x0
            if self.order == 2 and x0_prev is not None and i < len(steps) - 1:
                extrapolated = x0 + step.h / (2 * steps[i - 1].h) * (x0 - x0_prev)
            x, x0_prev = first_order_step(x, extrapolated, step), x0
        return x
