"""The forward process: how a clean sample becomes noise, and what a network's prediction says of
both.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from torch import Tensor

from rlfactory.dynamics.base import column


class Process(ABC):
    """Relations between clean `x0`, noise `eps`, the noisy `x` at time t, and the network's
    prediction.
    """

    name: ClassVar[Literal["flow", "vp"]]

    @abstractmethod
    def noise(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """The noisy sample at times `t` `[B]`."""

    @abstractmethod
    def to_x0(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """The clean sample that a prediction implies."""

    @abstractmethod
    def to_eps(self, x: Tensor, prediction: Tensor, t: Tensor) -> Tensor:
        """The noise that a prediction implies."""

    @abstractmethod
    def target(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """The prediction of a perfect network that knew `x0` and `eps`."""


class RectifiedFlow(Process):
    """Straight lines, `x = (1 - t) x0 + t eps`; the network predicts the velocity `eps - x0` (SD3,
    FLUX).
    """

    name = "flow"

    def noise(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """`(1 - t) x0 + t eps`."""
        sigma = column(t, x0)
        return (1 - sigma) * x0 + sigma * eps

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
