"""First-order steps of the probability-flow ODE, for either forward process."""

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics, expand_like
from rlfactory.dynamics.ops.forward_process import ForwardProcess


class ODE(Dynamics):
    """Euler's method for a rectified flow, DDIM with eta 0 for a variance-preserving process.

    Deterministic, so for algorithms that need no step likelihood.
    """

    has_log_prob = False
    process = None

    def __init__(self, process: ForwardProcess) -> None:
        self.forward_process = process

    def moments(
        self, x: Tensor, prediction: Tensor, t: Tensor, t_next: Tensor
    ) -> tuple[Tensor, Tensor]:
        mean = self.forward_process.ode_step(x, prediction, t, t_next)
        return mean, torch.zeros_like(expand_like(t, x))
