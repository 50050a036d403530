"""Noise schedules: the times at which the network is evaluated while sampling.

A schedule is a class with a class attribute `process` (`flow` or `vp`) and the method
`sigmas(model_shift, steps, tokens=..., dynamic=...)`, which returns times `[n + 1]` falling to 0.
Keyword-only constructor parameters are the configuration (`conf/schedule/`); there are no run-time
arguments.

For rectified flow four schedules are in use. `uniform` shifts evenly spaced sigmas from 1 to 1/n
(Flow-Factory, FLUX). `diffusers` is SD3's scheduler: it spaces evenly down to its smallest sigma,
which is *already shifted*, and shifts again, so that its last step is very short (0.0089 for 10
steps and shift 3). `unipc` is that of UniPC with flow sigmas (Wan); `dpm` that of diffusers'
DPM-Solver with them (SANA): `uniform` from 0.999 instead of 1 before the shift. Variance-preserving
models know integer timesteps only; `Leading` is the spacing with which Stable Diffusion 1 and 2 are
sampled, `Trailing` that of models distilled to few steps.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.dynamics.ops.forward_process import TRAIN_STEPS
from rlfactory.utils.types import Faults, NonNegativeInt, Positive, PositiveInt


def shifted(sigma: Tensor, shift: float) -> Tensor:
    """`s sigma / (1 + (s - 1) sigma)` (arXiv 2403.03206, eq. 23); s > 1 moves times towards noise.

    Computed so that 1 stays exactly 1 for every shift: sampling starts there, and Flow-SDE treats
    that time as a special case.
    """
    noisy = shift * sigma
    return noisy / (noisy + (1 - sigma))


def dynamic_shift(
    tokens: int,
    *,
    base: float = 0.5,
    largest: float = 1.15,
    base_tokens: int = 256,
    most_tokens: int = 4096,
    exponential: bool = True,
) -> float:
    """The shift `e^mu`, or mu unless `exponential`; mu is linear in the number of image tokens.

    mu is `base` at `base_tokens` and `largest` at `most_tokens`; the defaults are FLUX's.
    """
    mu = base + (largest - base) * (tokens - base_tokens) / (most_tokens - base_tokens)
    return math.exp(mu) if exponential else mu


def uniform_sigmas(steps: int, shift: float) -> Tensor:
    """`[steps + 1]` from 1 to 0: even spacing down to 1/steps, then shifted."""
    return _ending_at_zero(shifted(torch.linspace(1, 1 / steps, steps), shift))


def diffusers_sigmas(steps: int, shift: float, *, dynamic: bool = False) -> Tensor:
    """`[steps + 1]` from 1 to 0, equal to `FlowMatchEulerDiscreteScheduler(shift=shift)`.

    With `use_dynamic_shifting`, here `dynamic`, its smallest sigma is not shifted beforehand.
    """
    smallest = torch.tensor(1 / TRAIN_STEPS)
    if not dynamic:
        smallest = shifted(smallest, shift)
    return _ending_at_zero(shifted(torch.linspace(1, smallest.item(), steps), shift))


def dpm_sigmas(steps: int, shift: float) -> Tensor:
    """`[steps + 1]`, falling to 0: `DPMSolverMultistepScheduler(use_flow_sigmas=True)`.

    Even spacing from 0.999 down to 0.999 / steps, then shifted by its `flow_shift`.
    """
    largest = 1 - 1 / TRAIN_STEPS
    return _ending_at_zero(shifted(torch.linspace(largest, largest / steps, steps), shift))


def unipc_sigmas(steps: int, shift: float) -> Tensor:
    """`[steps + 1]` from 1 to 0, equal to `UniPCMultistepScheduler(use_flow_sigmas=True)`.

    Of an even spacing from 1 to 1/1000 in n steps, the last one ends at 0 instead. The scheduler's
    first sigma is lower by 1e-6.
    """
    return _ending_at_zero(shifted(torch.linspace(1, 1 / TRAIN_STEPS, steps + 1)[:-1], shift))


def leading_timesteps(steps: int, offset: int) -> Tensor:
    """Timesteps `[steps]`, falling: multiples of `1000 // steps` plus `offset` (`DDIMScheduler`).
    ValueError where the largest is 1000 or more.
    """
    timesteps = torch.arange(steps).flip(0) * (TRAIN_STEPS // steps) + offset
    if steps > TRAIN_STEPS or timesteps[0] >= TRAIN_STEPS:
        raise ValueError(f"{steps} steps from timestep {offset} on end beyond {TRAIN_STEPS - 1}")
    return timesteps


def trailing_timesteps(steps: int) -> Tensor:
    """Timesteps `[steps]`, falling from 999, 1000 / steps apart (`DDIMScheduler`). ValueError where
    the smallest is 0, at which sampling ends.
    """
    spaced = TRAIN_STEPS - torch.arange(steps, dtype=torch.float64) * (TRAIN_STEPS / steps)
    timesteps = spaced.round().long() - 1
    if timesteps[-1] < 1:
        raise ValueError(f"{steps} steps from timestep {TRAIN_STEPS - 1} on end before timestep 1")
    return timesteps


def compress_tail(times: Tensor, start: int, share: float) -> Tensor:
    """A schedule `[n + 1]` with fewer steps from step `start` on (MixGRPO-Flash): a `share` of
    them, at least one, between the same two times, interpolated evenly by index.
    """
    remaining = len(times) - 1 - start
    if remaining < 1:
        return times
    steps = max(1, int(remaining * share + 1e-9))  # rounding: 100 x 0.29 is 28.999...
    position = start + torch.linspace(0, remaining, steps + 1)[1:-1]
    left = position.long()
    between = torch.lerp(times[left], times[left + 1], position - left)
    return torch.cat([times[: start + 1], between, times[-1:]])


def _ending_at_zero(sigmas: Tensor) -> Tensor:
    return torch.cat([sigmas, torch.zeros(1)])


class Schedule:
    """A rectified-flow schedule.

    Args:
        kind: Spacing, see the module.
        steps: n, the number of sampling steps.
        shift: None: the model's own; `dynamic`: FLUX's, which grows with the image.

    Attributes:
        process: The forward process that the schedule is for.
    """

    process = "flow"

    def __init__(
        self,
        *,
        kind: Literal["uniform", "diffusers", "unipc", "dpm"] = "uniform",
        steps: PositiveInt = 10,
        shift: Positive | Literal["dynamic"] | None = None,
    ) -> None:
        self.kind = kind
        self.steps = steps
        self.shift = shift

    def sigmas(
        self,
        model_shift: float,
        steps: int | None = None,
        *,
        tokens: int | None = None,
        dynamic: bool = False,
    ) -> Tensor:
        """Times `[n + 1]` of a sampling run, from 1 to 0; of `dpm` from a little below 1.

        Args:
            model_shift: The model's own shift.
            steps: Number of steps, if not the configured one.
            tokens: Number of image tokens, for `shift=dynamic`; ValueError without them.
            dynamic: Whether the model's own shift depends on these.
        """
        steps, shift = steps or self.steps, self._shift(model_shift, tokens)
        if self.kind == "uniform":
            return uniform_sigmas(steps, shift)
        if self.kind == "dpm":
            return dpm_sigmas(steps, shift)
        if self.kind == "unipc":
            return unipc_sigmas(steps, shift)
        is_dynamic = dynamic if self.shift is None else self.shift == "dynamic"
        return diffusers_sigmas(steps, shift, dynamic=is_dynamic)

    def _shift(self, model_shift: float, tokens: int | None) -> float:
        if self.shift != "dynamic":
            return self.shift or model_shift
        if tokens is None:
            raise ValueError("schedule.shift=dynamic: this model does not report its image tokens")
        return dynamic_shift(tokens)


class _Spaced:
    """Times of a variance-preserving model that are timesteps / 1000, and 0 at the end."""

    process = "vp"
    steps: int

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """All steps, also of evaluations, are at timesteps of their own."""
        count, offset = 1000, options.get("steps_offset")

        def fits(steps: int) -> bool:
            if offset is None:  # trailing: the last is above 0, the end
                return round(count / steps) > 1
            return steps <= count and (steps - 1) * (count // steps) + offset < count

        evaluated = run["evaluation"].get("steps")
        for key, steps in (("steps", options["steps"]), ("evaluation.steps", evaluated)):
            if steps is not None and not fits(steps):
                most = next(n for n in range(min(steps, count), 0, -1) if fits(n))
                message = f"{steps} steps do not fit this schedule's timesteps, at most {most} do"
                fix = "schedule.steps" if key == "steps" else key
                yield key, message, f"{fix}={most}"

    def _timesteps(self, steps: int) -> Tensor:
        """Timesteps `[steps]`, falling."""
        raise NotImplementedError

    def sigmas(
        self,
        model_shift: float,
        steps: int | None = None,
        *,
        tokens: int | None = None,
        dynamic: bool = False,
    ) -> Tensor:
        """Times `[n + 1]`, falling to 0; only `steps` has an effect."""
        return _ending_at_zero(self._timesteps(steps or self.steps) / TRAIN_STEPS)


class Leading(_Spaced):
    """Evenly spaced timesteps of a variance-preserving model, as times (timestep / 1000).

    Args:
        steps: n, the number of sampling steps.
        steps_offset: The smallest timestep, that of the last evaluation.
    """

    def __init__(self, *, steps: PositiveInt = 50, steps_offset: NonNegativeInt = 1) -> None:
        self.steps = steps
        self.steps_offset = steps_offset

    def _timesteps(self, steps: int) -> Tensor:
        return leading_timesteps(steps, self.steps_offset)


class Trailing(_Spaced):
    """Evenly spaced timesteps from 999 on of a variance-preserving model, as times.

    Args:
        steps: n, the number of sampling steps.
    """

    def __init__(self, *, steps: PositiveInt = 50) -> None:
        self.steps = steps

    def _timesteps(self, steps: int) -> Tensor:
        return trailing_timesteps(steps)
