"""The probability-flow ODE of any forward process, in steps of first order."""

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics, Step, column
from rlfactory.dynamics.process import Process


class ODE(Dynamics):
    """Euler's method for a flow, DDIM with eta 0 for a variance-preserving process.

    Deterministic, so for algorithms that need no likelihood.
    """

    log_prob = False
    process = None

    def __init__(self, process: Process) -> None:
        self.forward_process = process

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
        """One step, which ignores `noise`."""
        del noise
        mean = self.forward_process.follow(x, prediction, t, t_next)
        return Step(mean if next is None else next, mean, torch.zeros_like(column(t, x)), None)
