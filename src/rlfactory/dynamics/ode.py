"""The probability-flow ODE of a rectified flow, by Euler's method."""

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics, Step, column


class ODE(Dynamics):
    """`x + v dt`: deterministic, so for algorithms that need no likelihood."""

    log_prob = False
    process = "flow"

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
        """Euler's step, which ignores `noise`."""
        del noise
        mean = x.float() + prediction.float() * column(t_next - t, x)
        return Step(mean if next is None else next, mean, torch.zeros_like(column(t, x)), None)
