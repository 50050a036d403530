"""Coefficients-preserving sampling, the stochastic sampler of Flow-CPS (arXiv 2509.05952)."""

import math
from typing import Literal

from torch import Tensor

from rlfactory.dynamics.base import Dynamics, Step, column, gaussian_log_prob, gaussian_step
from rlfactory.dynamics.process import RectifiedFlow
from rlfactory.types import PositiveFraction

FLOW = RectifiedFlow()


class CPS(Dynamics):
    """Part of the predicted noise is replaced by new noise, and the total stays that of the flow:

        std  = sigma_next sin(noise_level pi / 2),
        mean = (1 - sigma_next) x0 + sqrt(sigma_next^2 - std^2) eps.

    Published is `log_prob_of="quadratic"`, `-mean((next - mean)^2)`: no density, but finite at the
    last step too, where `std` is 0. `gaussian` is the density, which does not exist there: the plan
    refuses it in a window that holds that step.
    """

    log_prob = True
    process = "flow"
    quiet_end = True

    def __init__(
        self,
        *,
        noise_level: PositiveFraction = 0.8,
        log_prob_of: Literal["quadratic", "gaussian"] = "quadratic",
    ) -> None:
        self.noise_level = noise_level
        self.log_prob_of: Literal["quadratic", "gaussian"] = log_prob_of

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
        sigma_next = column(t_next, x)
        std = sigma_next * math.sin(self.noise_level * math.pi / 2)
        kept = sigma_next * math.cos(self.noise_level * math.pi / 2)  # sqrt(sigma_next^2 - std^2)
        mean = (1 - sigma_next) * FLOW.to_x0(x, v, t) + kept * FLOW.to_eps(x, v, t)
        log_prob = gaussian_log_prob if self.log_prob_of == "gaussian" else negative_square
        return gaussian_step(mean, std, noise, next, log_prob)


def negative_square(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """`-mean((x - mean)^2)` over a sample's dimensions, `[B]`, whatever the deviation."""
    del std
    return -((x - mean) ** 2).flatten(1).mean(1)
