"""Stochastic DDIM (arXiv 2010.02502, eq. 12 and 16), the sampler of DDPO."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics, expand_like
from rlfactory.dynamics.ops.forward_process import VariancePreserving
from rlfactory.utils.types import NonNegative, PositiveFraction


class DDIM(Dynamics):
    """From `abar` to `abar'` (alphas_cumprod), with the predicted x0 and noise eps:

        std  = eta sqrt((1 - abar') / (1 - abar) (1 - abar / abar')),
        mean = sqrt(abar') x0 + sqrt(1 - abar' - std^2) eps.

    With eta = 0 it is the step of the probability-flow ODE.

    Args:
        eta: The noise level; 1 is DDPM's.
        final_alpha: abar' of the last step, to time 0: the table's `first` entry (as in all
            published code) or `one`. With `one` that step has no noise and no likelihood, unless
            `min_std` is set.
        min_std: Lower bound of std (DRLX: 1e-6).
    """

    has_log_prob = True
    process = "vp"

    def __init__(
        self,
        process: VariancePreserving,
        *,
        eta: PositiveFraction = 1.0,
        final_alpha: Literal["first", "one"] = "first",
        min_std: NonNegative = 0.0,
    ) -> None:
        self.forward_process = process
        self.eta = eta
        self.final_alpha: Literal["first", "one"] = final_alpha
        self.min_std = min_std

    def moments(
        self, x: Tensor, prediction: Tensor, t: Tensor, t_next: Tensor
    ) -> tuple[Tensor, Tensor]:
        abar = self.forward_process.abar(expand_like(t, x))
        abar_next = self.forward_process.abar(expand_like(t_next, x))
        if self.final_alpha == "one":
            abar_next = torch.where(expand_like(t_next, x) > 0, abar_next, 1.0)
        variance = self.eta**2 * (1 - abar_next) / (1 - abar) * (1 - abar / abar_next)
        x0 = self.forward_process.to_x0(x, prediction, t)
        eps = self.forward_process.to_eps(x, prediction, t)
        # min_std does not enter the mean, which is that of the published scheduler
        mean = abar_next.sqrt() * x0 + (1 - abar_next - variance).sqrt() * eps
        return mean, variance.sqrt().clamp(min=self.min_std)
