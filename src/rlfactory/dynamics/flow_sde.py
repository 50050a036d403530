"""Flow-SDE, the stochastic sampler of Flow-GRPO (arXiv 2505.05470, eq. 9)."""

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics, expand_like
from rlfactory.utils.types import Positive


class FlowSDE(Dynamics):
    """With `g = a sqrt(sigma / (1 - sigma))` and `dt = sigma_next - sigma < 0`:

        mean = x (1 + g^2 / (2 sigma) dt) + v (1 + g^2 (1 - sigma) / (2 sigma)) dt,
        std  = g sqrt(-dt).

    At `sigma = 1`, where g is infinite, the denominator uses the next step's sigma, as published.
    With a = 0 it is Euler's step.

    Args:
        noise_level: a; published: 0.7 for SD3.5, 0.9 for FLUX.
    """

    has_log_prob = True
    process = "flow"
    step_form = "flow_sde"

    def __init__(self, *, noise_level: Positive = 1.0) -> None:
        self.noise_level = noise_level

    def moments(
        self, x: Tensor, prediction: Tensor, t: Tensor, t_next: Tensor
    ) -> tuple[Tensor, Tensor]:
        sigma, sigma_next = expand_like(t, x), expand_like(t_next, x)
        dt = sigma_next - sigma
        g = self.noise_level * self._diffusion(sigma, sigma_next)
        score_weight = g**2 / (2 * sigma)
        mean = x * (1 + score_weight * dt) + prediction * (1 + score_weight * (1 - sigma)) * dt
        return mean, g * torch.sqrt(-dt)

    def _diffusion(self, sigma: Tensor, sigma_next: Tensor) -> Tensor:
        """g for a noise level of 1."""
        sigma_below_one = torch.where(sigma < 1, sigma, sigma_next)
        return torch.sqrt(sigma / (1 - sigma_below_one))
