"""DPM-Solver++ (arXiv 2211.01095, algorithm 2), the deterministic solver of DiffusionNFT."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from rlfactory.dynamics.process import Process
from rlfactory.dynamics.solver import Predict, Solver, at, first_order, intervals


class DPMSolver(Solver):
    """The multistep method "2M" in its midpoint form: x0 is extrapolated half a step ahead,

        x' = sigma'/sigma x + alpha' (1 - exp(-h)) (x0 + h / (2 h_before) (x0 - x0_before)).

    The first step and the last are of first order, and with `order` 1 they all are: the ODE's
    steps, Euler's for a flow.
    """

    def __init__(self, process: Process, *, order: Literal[1, 2] = 2) -> None:
        self.forward_process = process
        self.order = order

    def solve(
        self, predict: Predict, x: Tensor, times: Tensor, generators: Sequence[torch.Generator]
    ) -> Tensor:
        """Samples `[B, ...]`; no noise is drawn."""
        del generators
        steps = intervals(self.forward_process, times)
        x, before = x.float(), None
        for i, step in enumerate(steps):
            t = at(times[i], x)
            x0 = self.forward_process.to_x0(x, predict(x, t).float(), t)
            ahead = x0
            if self.order == 2 and before is not None and i < len(steps) - 1:
                ahead = x0 + step.h / (2 * steps[i - 1].h) * (x0 - before)
            x, before = first_order(x, ahead, step), x0
        return x
