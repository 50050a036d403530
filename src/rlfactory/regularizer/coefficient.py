"""The weight of a KL penalty: fixed, or steered so that the divergence stays near a target.

The units of a target are those of the divergence that is steered. Of texts: nats a token, or nats a
sequence. Of images an item is token and sequence in one, so both are the mean divergence as the
regularizer measures it (`kl/reference`), a mean over a sample's dimensions whose scale is that
regularizer's own: a target, and `low` and `high`, have to be set for the one that is steered.
`samples` counts texts or pictures.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal, final

from rlfactory.types import NonNegative, Positive, PositiveInt


class Coefficient(ABC):
    """Owns its state, so that the configuration goes on describing the run.

    `every` says when to `update`: once per iteration, or after each optimiser step.
    """

    every: ClassVar[Literal["iteration", "step"]] = "iteration"

    def __init__(self, value: float) -> None:
        self._value = value

    @property
    def value(self) -> float:
        """What to multiply the divergence by."""
        return self._value

    @abstractmethod
    def update(self, kl_per_token: float, kl_per_sequence: float, samples: int) -> None:
        """Take in the mean divergence that `samples` sequences showed; of images both are one."""

    def state_dict(self) -> dict[str, float]:
        """What a resumed run needs."""
        return {"value": self._value}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on from a `state_dict`."""
        self._value = state["value"]


@final
class Fixed(Coefficient):
    """The same weight throughout."""

    def __init__(self, *, value: NonNegative) -> None:
        super().__init__(value)

    def update(self, kl_per_token: float, kl_per_sequence: float, samples: int) -> None:
        """Nothing."""
        del kl_per_token, kl_per_sequence, samples


class _Steered(Coefficient):
    """Multiplied by `1 + clip(kl / target - 1, +-clip) n / horizon`, between `low` and `high`."""

    def __init__(
        self, value: float, target: float, horizon: int, clip: float, low: float, high: float
    ) -> None:
        if not low <= value <= high:
            raise ValueError(
                f"a coefficient of {value:g} is outside its bounds, {low:g} to {high:g}"
            )
        super().__init__(value)
        self.target, self.horizon, self.clip = target, horizon, clip
        self.low, self.high = low, high

    def _steer(self, kl: float, count: int) -> None:
        error = min(max(kl / self.target - 1, -self.clip), self.clip)
        moved = self._value * (1 + error * count / self.horizon)
        self._value = min(max(moved, self.low), self.high)


@final
class Proportional(_Steered):
    """OpenAI's controller (arXiv 1909.08593, 2.2): `target` in nats per sequence.

    `horizon` is in episodes. Theirs and TRL's has no bounds.
    """

    def __init__(
        self,
        *,
        value: Positive,
        target: Positive,
        horizon: PositiveInt,
        clip: Positive = 0.2,
        low: Positive = 1e-4,
        high: Positive = 10.0,
    ) -> None:
        super().__init__(value, target, horizon, clip, low, high)

    def update(self, kl_per_token: float, kl_per_sequence: float, samples: int) -> None:
        """Move by what a sequence's divergence says, in proportion to `samples`."""
        del kl_per_token
        self._steer(kl_per_sequence, samples)


@final
class PerStep(_Steered):
    """The walkthrough's controller: `target` in nats per token, `horizon` in optimiser steps.

    Its `clip` is that of PPO's ratio. It hardly moves: by 0.0094 % a step at a horizon of 3200.
    """

    every = "step"

    def __init__(
        self,
        *,
        value: Positive,
        target: Positive,
        horizon: PositiveInt,
        clip: Positive = 0.3,
        low: Positive = 1e-4,
        high: Positive = 10.0,
    ) -> None:
        super().__init__(value, target, horizon, clip, low, high)

    def update(self, kl_per_token: float, kl_per_sequence: float, samples: int) -> None:
        """Move by what a token's divergence says, one step whatever the minibatch holds."""
        del kl_per_sequence, samples
        self._steer(kl_per_token, 1)
