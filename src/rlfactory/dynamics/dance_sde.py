"""Dance-SDE, the stochastic sampler of DanceGRPO (arXiv 2505.07818)."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.dynamics.base import (
    Dynamics,
    Step,
    column,
    gaussian_log_prob,
    gaussian_step,
    quadratic_log_prob,
)
from rlfactory.types import Positive


class DanceSDE(Dynamics):
    """With `dt < 0` and the predicted noise `eps = x + (1 - sigma) v`, the step is normal with

        mean = x + (v + eta^2 eps / (2 sigma)) dt,
        std  = eta sqrt(-dt).

    `eps / sigma` is minus the score, so marginals are kept. No noise gives Euler's step. The noise
    does not fade: the last step ends in a noisy sample, so the picture is published from the last
    estimate of x0 (`decode`). `constants=False` is MixGRPO's log-probability, which lost all but
    the quadratic term.
    """

    log_prob = True
    process = "flow"

    def __init__(
        self,
        *,
        eta: Positive = 0.3,
        constants: bool = True,
        decode: Literal["sample", "x0"] = "x0",
    ) -> None:
        self.eta = eta
        self.constants = constants
        self.decode = decode

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
        """One stochastic step; see the class for the formula."""
        x, v = x.float(), prediction.float()
        sigma = column(t, x)
        dt = column(t_next, x) - sigma
        eps = x + (1 - sigma) * v
        mean = x + (v + 0.5 * self.eta**2 * eps / sigma) * dt
        std = self.eta * torch.sqrt(-dt)
        log_prob = gaussian_log_prob if self.constants else quadratic_log_prob
        return gaussian_step(mean, std, noise, next, log_prob)
