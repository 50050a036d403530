"""Forward processes: how a clean sample becomes noise, and what a network's prediction implies.

Notation: clean sample x0, noise eps, noisy sample `x = alpha x0 + sigma eps` at time t in [0, 1];
1 is pure noise, or almost. Tensors are `[B, C, H, W]` and times `[B]`, unless stated otherwise.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from rlfactory.dynamics.base import expand_like

TRAIN_STEPS = 1000


class ForwardProcess(ABC):
    """The contract of a forward process, together with what its networks predict; `name` is what
    dynamics and schedules state in `process`.
    """

    name: ClassVar[Literal["flow", "vp"]]

    @abstractmethod
    def alpha_sigma(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients of the clean sample and of the noise, at times of any shape."""

    @abstractmethod
    def to_x0(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """The clean sample that a prediction for `x` at `t` implies."""

    @abstractmethod
    def to_eps(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """The noise that a prediction for `x` at `t` implies."""

    @abstractmethod
    def target(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """The prediction to be learned for the noisy sample made of `x0` and `eps`."""

    @abstractmethod
    def velocity(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """The velocity of the noisy sample made of `x0` and `eps`, whatever networks predict."""

    def noise(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """The noisy sample `alpha x0 + sigma eps`."""
        alpha, sigma = self.alpha_sigma(expand_like(t, x0))
        return alpha * x0 + sigma * eps

    def ode_step(self, x: Tensor, prediction: Tensor, t: Tensor, t_next: Tensor) -> Tensor:
        """A first-order step of the probability-flow ODE, float32.

        DDIM with eta 0 (arXiv 2010.02502, eq. 12): the predicted x0 is noised with the predicted
        eps to the level of `t_next`.
        """
        x, prediction = x.float(), prediction.float()
        x0, eps = self.to_x0(x, prediction, t), self.to_eps(x, prediction, t)
        return self.noise(x0, eps, t_next)


class RectifiedFlow(ForwardProcess):
    """`x = (1 - t) x0 + t eps`; networks predict the velocity `v = eps - x0` (SD3, FLUX)."""

    name = "flow"

    def alpha_sigma(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """`1 - t` and `t`."""
        return 1 - t, t

    def to_x0(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """`x - t v`."""
        return x - expand_like(t, x) * prediction

    def to_eps(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """`x + (1 - t) v`."""
        return x + (1 - expand_like(t, x)) * prediction

    def target(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """`eps - x0`."""
        return eps - x0

    def velocity(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """`eps - x0`, the network's target."""
        return self.target(x0, eps, t)

    def ode_step(self, x: Tensor, prediction: Tensor, t: Tensor, t_next: Tensor) -> Tensor:
        """Euler's step `x + v dt`: equal to the general form, and to published code bit for bit."""
        return x.float() + prediction.float() * expand_like(t_next - t, x)


class VariancePreserving(ForwardProcess):
    """`x = sqrt(abar) x0 + sqrt(1 - abar) eps`; networks predict eps (Stable Diffusion 1, SDXL).

    Networks know integer timesteps only, so abar is looked up at `round(1000 t)`, within the
    falling table `alphas_cumprod` `[1000]`. Time 0 is timestep 0, at which a little noise is left.
    """

    name = "vp"

    def __init__(self, alphas_cumprod: Tensor) -> None:
        self.alphas_cumprod = alphas_cumprod.float()
        self._tables = {self.alphas_cumprod.device: self.alphas_cumprod}

    @classmethod
    def scaled_linear(cls) -> Self:
        """The schedule of Stable Diffusion 1 and 2: square roots of beta are evenly spaced."""
        betas = torch.linspace(0.00085**0.5, 0.012**0.5, TRAIN_STEPS, dtype=torch.float32) ** 2
        return cls(torch.cumprod(1 - betas, dim=0))

    def abar(self, t: Tensor) -> Tensor:
        """abar (alphas_cumprod) at times of any shape."""
        if t.device not in self._tables:  # once, since a copy waits
            self._tables[t.device] = self.alphas_cumprod.to(t.device)
        table = self._tables[t.device]
        return table[(TRAIN_STEPS * t).round().long().clamp(0, len(table) - 1)]

    def alpha_sigma(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """`sqrt(abar)` and `sqrt(1 - abar)`."""
        abar = self.abar(t)
        return abar.sqrt(), (1 - abar).sqrt()

    def to_x0(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """`(x - sigma eps) / alpha`."""
        alpha, sigma = self.alpha_sigma(expand_like(t, x))
        return (x - sigma * prediction) / alpha

    def to_eps(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """The prediction itself."""
        return prediction

    def target(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """`eps`."""
        return eps

    def velocity(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """`alpha eps - sigma x0` (v-prediction, arXiv 2202.00512)."""
        alpha, sigma = self.alpha_sigma(expand_like(t, x0))
        return alpha * eps - sigma * x0


class VelocityPrediction(VariancePreserving):
    """The same process; networks predict `v = alpha eps - sigma x0` (Stable Diffusion 2.1).

    Unlike a prediction of the noise it also tells x0 where abar is 0 (arXiv 2305.08891).
    """

    def to_x0(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """`alpha x - sigma v`."""
        alpha, sigma = self.alpha_sigma(expand_like(t, x))
        return alpha * x - sigma * prediction

    def to_eps(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """`sigma x + alpha v`."""
        alpha, sigma = self.alpha_sigma(expand_like(t, x))
        return sigma * x + alpha * prediction

    def target(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """`alpha eps - sigma x0`."""
        return self.velocity(x0, eps, t)
