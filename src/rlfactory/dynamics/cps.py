"""CPS: coefficients-preserving sampling, the stochastic sampler of Flow-CPS (arXiv 2509.05952)."""

import math
from typing import Literal

from torch import Tensor

from rlfactory.dynamics.base import Dynamics, expand_like, gaussian_log_prob
from rlfactory.dynamics.ops.forward_process import RectifiedFlow
from rlfactory.utils.types import PositiveFraction

FLOW = RectifiedFlow()


class CPS(Dynamics):
    """Replaces part of the predicted noise by new noise; the total stays that of the flow:

        std  = sigma_next sin(noise_level pi / 2),
        mean = (1 - sigma_next) x0 + sqrt(sigma_next^2 - std^2) eps,

    with x0 and eps from the predicted velocity.

    Args:
        noise_level: Share of new noise; towards 0 the step becomes Euler's.
        log_prob_of: `quadratic`: `-mean((next - mean)^2)`, as published; not a log-density, but
            finite at the last step, where std is 0. `gaussian`: the log-density, which does not
            exist there, so that the last step must not be in the window.
    """

    has_log_prob = True
    process = "flow"
    step_form = "cps"
    last_step_is_deterministic = True

    def __init__(
        self,
        *,
        noise_level: PositiveFraction = 0.8,
        log_prob_of: Literal["quadratic", "gaussian"] = "quadratic",
    ) -> None:
        self.noise_level = noise_level
        self.log_prob_of: Literal["quadratic", "gaussian"] = log_prob_of

    def moments(
        self, x: Tensor, prediction: Tensor, t: Tensor, t_next: Tensor
    ) -> tuple[Tensor, Tensor]:
        sigma_next = expand_like(t_next, x)
        std = sigma_next * math.sin(self.noise_level * math.pi / 2)
        # sqrt(sigma_next^2 - std^2)
        eps_coefficient = sigma_next * math.cos(self.noise_level * math.pi / 2)
        x0, eps = FLOW.to_x0(x, prediction, t), FLOW.to_eps(x, prediction, t)
        return (1 - sigma_next) * x0 + eps_coefficient * eps, std

    def log_prob(self, x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        formula = gaussian_log_prob if self.log_prob_of == "gaussian" else negative_square
        return formula(x, mean, std)


def negative_square(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """`-(x - mean)^2`, averaged over a sample's dimensions, `[B]`; `std` has no effect."""
    return -((x - mean) ** 2).flatten(1).mean(1)
