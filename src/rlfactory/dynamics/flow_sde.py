"""Flow-SDE, the stochastic sampler of Flow-GRPO (arXiv 2505.05470, eq. 9)."""

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics, Step, column, gaussian_step
from rlfactory.types import Positive


class FlowSDE(Dynamics):
    """With `g = a sqrt(sigma / (1 - sigma))` and `dt < 0`, the step is normal with

        mean = x (1 + g^2 / (2 sigma) dt) + v (1 + g^2 (1 - sigma) / (2 sigma)) dt,
        std  = g sqrt(-dt).

    At `sigma = 1`, where g is infinite, its denominator takes the sigma of the next step. No noise
    gives Euler's step.
    """

    log_prob = True
    process = "flow"

    def __init__(self, *, noise_level: Positive = 1.0) -> None:
        self.noise_level = noise_level

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
        sigma, sigma_next = column(t, x), column(t_next, x)
        dt = sigma_next - sigma
        finite = torch.where(sigma < 1, sigma, sigma_next)
        g = self.noise_level * torch.sqrt(sigma / (1 - finite))
        drift = g**2 / (2 * sigma)
        mean = x * (1 + drift * dt) + v * (1 + drift * (1 - sigma)) * dt
        return gaussian_step(mean, g * torch.sqrt(-dt), noise, next)
