"""Dance-SDE, the stochastic sampler of DanceGRPO (arXiv 2505.07818)."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics, expand_like, gaussian_log_prob, quadratic_log_prob
from rlfactory.utils.types import Positive


class DanceSDE(Dynamics):
    """With `dt = sigma_next - sigma < 0` and the predicted noise `eps = x + (1 - sigma) v`:

        mean = x + (v + eta^2 eps / (2 sigma)) dt,
        std  = eta sqrt(-dt).

    `-eps / sigma` is the score, so the marginals are those of the ODE; eta = 0 is Euler's step.

    Args:
        eta: The noise level, constant over time. So the last step ends in a noisy sample.
        constants: Whether the log-probability has its normalising constants; MixGRPO's code
            dropped them.
        decode: Whether the image is decoded from the last estimate of x0 (as published) or from
            the noisy sample.
    """

    has_log_prob = True
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

    def moments(
        self, x: Tensor, prediction: Tensor, t: Tensor, t_next: Tensor
    ) -> tuple[Tensor, Tensor]:
        sigma = expand_like(t, x)
        dt = expand_like(t_next, x) - sigma
        eps = x + (1 - sigma) * prediction
        mean = x + (prediction + 0.5 * self.eta**2 * eps / sigma) * dt
        return mean, self.eta * torch.sqrt(-dt)

    def log_prob(self, x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        formula = gaussian_log_prob if self.constants else quadratic_log_prob
        return formula(x, mean, std)
