"""The contract of an advantage: rewards in, the worth of each sample out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from rlfactory.rollout import Rollout


class Advantage(ABC):
    """`A(r) = (r - b) / s`: a reward above a baseline b, in units of s.

    `grouped` says that it compares the samples of one prompt, so that there must be at least two.
    """

    grouped: ClassVar[bool]

    @abstractmethod
    def __call__(self, rollout: Rollout, main: str) -> Rollout:
        """The rollout with `advantage` `[B]` float32, from `rewards` without NaN.

        `main` is the score that trains where the advantage names none. Samples that can teach
        nothing may be left out; `Rollout.weight` is then the factor on the mean loss of the rest.
        """

    def names(self, main: str) -> list[str]:
        """The scores that train: a sample without any one of them takes no part."""
        return [main]

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart, as plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` gave."""
        del state
