"""At which noise levels a sample is drawn.

For a rectified flow two "10-step" schedules are in use. `uniform` shifts evenly spaced sigmas from
1 to 1/n (Flow-Factory, FLUX); `diffusers` is what SD3's scheduler does: it spaces evenly down to
its smallest sigma, *already shifted*, and shifts again, so that its last step is very short (0.0089
for shift 3). A variance-preserving model knows whole timesteps alone: `Leading` is the choice of
them that Stable Diffusion 1 and 2 are sampled with.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from rlfactory.dynamics.process import TRAIN_STEPS
from rlfactory.types import NonNegativeInt, Positive, PositiveInt


def shifted(sigma: Tensor, shift: float) -> Tensor:
    """Move noise to the noisy end: `s sigma / (1 + (s - 1) sigma)` (arXiv 2403.03206, eq. 23).

    Written so that 1 stays exactly 1 for every shift; a sample starts there, and Flow-SDE's noise
    has a pole there.
    """
    noisy = shift * sigma
    return noisy / (noisy + (1 - sigma))


def dynamic_shift(tokens: int) -> float:
    """FLUX's shift `e^mu` for that many image tokens; mu is linear, 0.5 at 256, 1.15 at 4096."""
    return math.exp(0.5 + (1.15 - 0.5) * (tokens - 256) / (4096 - 256))


def uniform_sigmas(steps: int, shift: float) -> Tensor:
    """`[steps + 1]` from 1 to 0: even spacing down to 1/steps, then shifted."""
    return _ending_at_zero(shifted(torch.linspace(1, 1 / steps, steps), shift))


def diffusers_sigmas(steps: int, shift: float) -> Tensor:
    """`[steps + 1]` from 1 to 0, equal to `FlowMatchEulerDiscreteScheduler(shift=shift)`."""
    smallest = shifted(torch.tensor(1 / TRAIN_STEPS), shift).item()
    return _ending_at_zero(shifted(torch.linspace(1, smallest, steps), shift))


def leading_timesteps(steps: int, offset: int) -> Tensor:
    """`[steps]`, falling: every `1000 // steps`-th from `offset` on, as in `DDIMScheduler`."""
    timesteps = torch.arange(steps).flip(0) * (TRAIN_STEPS // steps) + offset
    if steps > TRAIN_STEPS or timesteps[0] >= TRAIN_STEPS:
        raise ValueError(f"{steps} steps from timestep {offset} on end beyond {TRAIN_STEPS - 1}")
    return timesteps


def compressed(times: Tensor, start: int, share: float) -> Tensor:
    """A schedule `[n + 1]` whose steps from number `start` on are merged into `share` as many, at
    least one (MixGRPO-Flash). The ends of the tail stay, and between them its times are taken
    evenly by index.
    """
    remaining = len(times) - 1 - start
    if remaining < 1:
        return times
    steps = max(1, int(remaining * share + 1e-9))  # 100 x 0.29 is 28.999...
    place = start + torch.linspace(0, remaining, steps + 1)[1:-1]
    left = place.long()
    between = torch.lerp(times[left], times[left + 1], place - left)
    return torch.cat([times[: start + 1], between, times[-1:]])


def _ending_at_zero(sigmas: Tensor) -> Tensor:
    return torch.cat([sigmas, torch.zeros(1)])


class Schedule:
    """A number of steps of a flow, their spacing, and a shift.

    Without a shift it is the model's own; `dynamic` is FLUX's, which grows with the picture.
    """

    process = "flow"

    def __init__(
        self,
        *,
        kind: Literal["uniform", "diffusers"] = "uniform",
        steps: PositiveInt = 10,
        shift: Positive | Literal["dynamic"] | None = None,
    ) -> None:
        self.kind = kind
        self.steps = steps
        self.shift = shift

    def sigmas(
        self, model_shift: float, steps: int | None = None, *, tokens: int | None = None
    ) -> Tensor:
        """Noise levels `[steps + 1]`, from 1 to 0, for pictures of so many `tokens`."""
        spacing = uniform_sigmas if self.kind == "uniform" else diffusers_sigmas
        return spacing(steps or self.steps, self._shift(model_shift, tokens))

    def _shift(self, model_shift: float, tokens: int | None) -> float:
        if self.shift != "dynamic":
            return self.shift or model_shift
        if tokens is None:
            raise ValueError("schedule.shift=dynamic: this model does not tell its image tokens")
        return dynamic_shift(tokens)


class Leading:
    """Timesteps that are evenly spaced from `steps_offset` on, as times (timestep / 1000)."""

    process = "vp"

    def __init__(self, *, steps: PositiveInt = 50, steps_offset: NonNegativeInt = 1) -> None:
        self.steps = steps
        self.steps_offset = steps_offset

    def sigmas(
        self, model_shift: float, steps: int | None = None, *, tokens: int | None = None
    ) -> Tensor:
        """Times `[steps + 1]`, falling to 0; such a model knows no shift."""
        del model_shift, tokens
        timesteps = leading_timesteps(steps or self.steps, self.steps_offset)
        return _ending_at_zero(timesteps / TRAIN_STEPS)
