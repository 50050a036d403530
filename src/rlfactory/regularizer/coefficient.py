"""KL coefficients: fixed, or controlled so that the divergence stays near a target.

A target has the unit of the divergence. For texts that is nats per token, or nats per sequence. For
images a training item counts as both, and the unit is that of the regularizer's own divergence (the
metric `kl/reference`, a mean over a sample's dimensions), so that `target`, `low` and `high` must
be chosen for the regularizer in use.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, final

from rlfactory.utils.types import NonNegative, Positive, PositiveInt


class Coefficient(ABC):
    """The contract of a KL coefficient.

    Keyword-only constructor parameters are the configuration; there are no run-time arguments.
    `update` is called as `every` says; `state_dict` is saved with every checkpoint.

    Attributes:
        every: When to call `update`: once an iteration, or after each optimizer step.
    """

    every: ClassVar[Literal["iteration", "step"]] = "iteration"

    def __init__(self, value: float) -> None:
        self._value = value

    @property
    def value(self) -> float:
        """The current factor on the divergence."""
        return self._value

    @abstractmethod
    def update(self, kl_per_token: float, kl_per_sequence: float, samples: int) -> None:
        """Adapt the value to a measured divergence.

        Args:
            kl_per_token: Mean divergence of a token (images: of a training item).
            kl_per_sequence: Mean divergence of a response (images: the same as `kl_per_token`).
            samples: Number of responses or images that were measured.
        """

    def state_dict(self) -> dict[str, float]:
        """The value, to checkpoint."""
        return {"value": self._value}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore the value from a `state_dict`."""
        self._value = float(state["value"])


@final
class Fixed(Coefficient):
    """A constant coefficient.

    Args:
        value: The coefficient; 0 only measures the divergence.
    """

    def __init__(self, *, value: NonNegative) -> None:
        super().__init__(value)

    def update(self, kl_per_token: float, kl_per_sequence: float, samples: int) -> None:
        """Nothing changes."""


class _Controlled(Coefficient):
    """Proportional control: `value *= 1 + clip(kl / target - 1, -c, c) n / horizon`.

    Args:
        value: Initial coefficient.
        target: The divergence to keep.
        horizon: See n in the subclasses.
        clip: c, the bound of the relative error.
        low: Lower bound of the value.
        high: Upper bound of the value.

    Raises:
        ValueError: `value` is not between `low` and `high`.
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
        if not low <= value <= high:
            raise ValueError(
                f"a coefficient of {value:g} is outside its bounds, {low:g} to {high:g}"
            )
        super().__init__(value)
        self.target, self.horizon, self.clip = target, horizon, clip
        self.low, self.high = low, high

    def _adapt(self, kl: float, count: int) -> None:
        error = min(max(kl / self.target - 1, -self.clip), self.clip)
        value = self._value * (1 + error * count / self.horizon)
        self._value = min(max(value, self.low), self.high)


@final
class Proportional(_Controlled):
    """OpenAI's adaptive KL controller (arXiv 1909.08593, section 2.2); updates once an iteration.

    `target` is in nats per sequence, and n counts samples, so that `horizon` is in episodes. The
    controllers of OpenAI and TRL have no bounds.
    """

    def update(self, kl_per_token: float, kl_per_sequence: float, samples: int) -> None:
        """Adapt to the divergence of a sequence, in proportion to `samples`."""
        self._adapt(kl_per_sequence, samples)


@final
class PerStep(_Controlled):
    """The walkthrough's controller; updates after each optimizer step.

    `target` is in nats per token, and n = 1, so that `horizon` is in optimizer steps. Its `clip` is
    that of PPO's ratio. It hardly moves: by 0.0094 % a step at a horizon of 3200.
    """

    every = "step"

    def __init__(self, *, clip: Positive = 0.3, **options: Any) -> None:
        super().__init__(clip=clip, **options)

    def update(self, kl_per_token: float, kl_per_sequence: float, samples: int) -> None:
        """Adapt to the divergence of a token, whatever the size of the minibatch."""
        self._adapt(kl_per_token, 1)
