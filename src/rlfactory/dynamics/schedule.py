"""At which noise levels a rectified flow is sampled.

Two "10-step" schedules are in use. `uniform` shifts evenly spaced sigmas from 1 to 1/n
(Flow-Factory, FLUX); `diffusers` is what SD3's scheduler does: it spaces evenly down to its
smallest sigma, *already shifted*, and shifts again, so that its last step is very short (0.0089
for shift 3).
"""

import math
from typing import Literal

import torch
from torch import Tensor

from rlfactory.types import Positive, PositiveInt

TRAIN_STEPS = 1000


def shifted(sigma: Tensor, shift: float) -> Tensor:
    """Move noise levels to the noisy end: `s sigma / (1 + (s - 1) sigma)` (arXiv 2403.03206, eq.
    23).

    Written so that 1 stays exactly 1 for every shift; a sample starts there, and Flow-SDE's noise
    has a pole there.
    """
    noisy = shift * sigma
    return noisy / (noisy + (1 - sigma))


def dynamic_shift(tokens: int) -> float:
    """FLUX's shift `e^mu` for a number of image tokens; mu is linear, 0.5 at 256 and 1.15 at
    4096.
    """
    return math.exp(0.5 + (1.15 - 0.5) * (tokens - 256) / (4096 - 256))


def uniform_sigmas(steps: int, shift: float) -> Tensor:
    """`[steps + 1]` from 1 to 0: even spacing down to 1/steps, then shifted."""
    return _ending_at_zero(shifted(torch.linspace(1, 1 / steps, steps), shift))


def diffusers_sigmas(steps: int, shift: float) -> Tensor:
    """`[steps + 1]` from 1 to 0, equal to `FlowMatchEulerDiscreteScheduler(shift=shift)`."""
    smallest = shifted(torch.tensor(1 / TRAIN_STEPS), shift).item()
    return _ending_at_zero(shifted(torch.linspace(1, smallest, steps), shift))


def _ending_at_zero(sigmas: Tensor) -> Tensor:
    return torch.cat([sigmas, torch.zeros(1)])


class Schedule:
    """A number of steps, their spacing, and a shift; without one, the model's own."""

    def __init__(
        self,
        *,
        kind: Literal["uniform", "diffusers"] = "uniform",
        steps: PositiveInt = 10,
        shift: Positive | None = None,
    ) -> None:
        self.kind = kind
        self.steps = steps
        self.shift = shift

    def sigmas(self, model_shift: float, steps: int | None = None) -> Tensor:
        """Noise levels `[steps + 1]`, from 1 to 0."""
        spacing = uniform_sigmas if self.kind == "uniform" else diffusers_sigmas
        return spacing(steps or self.steps, self.shift or model_shift)
