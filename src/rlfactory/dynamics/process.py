"""The forward process: how a sample becomes noise, and what a prediction says of both."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from rlfactory.dynamics.base import column

TRAIN_STEPS = 1000


class Process(ABC):
    """Relations of clean `x0`, noise `eps`, the noisy `x = alpha x0 + sigma eps` at time t, and a
    prediction. Times are `[B]`, in [0, 1]; 1 is (almost) pure noise.
    """

    name: ClassVar[Literal["flow", "vp"]]

    @abstractmethod
    def alpha_sigma(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """What is left of the sample and what there is of noise at times of any shape."""

    @abstractmethod
    def to_x0(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """The clean sample that a prediction implies."""

    @abstractmethod
    def to_eps(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """The noise that a prediction implies."""

    @abstractmethod
    def target(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """The prediction of a perfect network that knew `x0` and `eps`."""

    @abstractmethod
    def velocity(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """The direction from the sample to the noise, whatever the network predicts."""

    def noise(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """The noisy sample at times `t` `[B]`."""
        alpha, sigma = self.alpha_sigma(column(t, x0))
        return alpha * x0 + sigma * eps

    def follow(self, x: Tensor, prediction: Tensor, t: Tensor, t_next: Tensor) -> Tensor:
        """One first-order step of the probability-flow ODE, in float32: the noise stays, and there
        is less of it (DDIM with eta 0, arXiv 2010.02502, eq. 12).
        """
        x, prediction = x.float(), prediction.float()
        x0, eps = self.to_x0(x, prediction, t), self.to_eps(x, prediction, t)
        return self.noise(x0, eps, t_next)


class RectifiedFlow(Process):
    """Straight lines, `x = (1 - t) x0 + t eps`; predicted is the velocity `eps - x0`."""

    name = "flow"

    def alpha_sigma(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """`1 - t` and `t`."""
        return 1 - t, t

    def to_x0(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """`x - t v`."""
        return x - column(t, x) * prediction

    def to_eps(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """`x + (1 - t) v`."""
        return x + (1 - column(t, x)) * prediction

    def target(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """`eps - x0`."""
        del t
        return eps - x0

    def velocity(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """`eps - x0`, which is what the network predicts."""
        return self.target(x0, eps, t)

    def follow(self, x: Tensor, prediction: Tensor, t: Tensor, t_next: Tensor) -> Tensor:
        """Euler's step `x + v dt`: the same point, and bit for bit what every peer computes."""
        return x.float() + prediction.float() * column(t_next - t, x)


class VariancePreserving(Process):
    """`x = sqrt(abar) x0 + sqrt(1 - abar) eps`; predicted is the noise (Stable Diffusion 1 and 2).

    The network knows whole timesteps alone: a time is looked up at `round(1000 t)`, which ends at
    the table's ends. So time 0 is timestep 0, where a little noise is left.
    """

    name = "vp"

    def __init__(self, alphas_cumprod: Tensor) -> None:
        """`alphas_cumprod` `[1000]`: abar of each timestep, falling."""
        self.alphas_cumprod = alphas_cumprod.float()

    @classmethod
    def scaled_linear(
        cls, first: float = 0.00085, last: float = 0.012, steps: int = TRAIN_STEPS
    ) -> Self:
        """The betas of Stable Diffusion 1 and 2, whose roots are evenly spaced."""
        betas = torch.linspace(first**0.5, last**0.5, steps, dtype=torch.float32) ** 2
        return cls(torch.cumprod(1 - betas, dim=0))

    def abar(self, t: Tensor) -> Tensor:
        """The share of the sample in the variance, at times of any shape."""
        table = self.alphas_cumprod.to(t.device)
        timestep = (TRAIN_STEPS * t).round().long().clamp(0, len(table) - 1)
        return table[timestep]

    def alpha_sigma(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """`sqrt(abar)` and `sqrt(1 - abar)`."""
        abar = self.abar(t)
        return abar.sqrt(), (1 - abar).sqrt()

    def to_x0(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """`(x - sigma eps) / alpha`."""
        alpha, sigma = self.alpha_sigma(column(t, x))
        return (x - sigma * prediction) / alpha

    def to_eps(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """The prediction itself."""
        del x, t
        return prediction

    def target(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """`eps`."""
        del x0, t
        return eps

    def velocity(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """`alpha eps - sigma x0` (arXiv 2202.00512), as `velocity` models predict it."""
        alpha, sigma = self.alpha_sigma(column(t, x0))
        return alpha * eps - sigma * x0
