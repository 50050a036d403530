"""The contract of an algorithm: a loss, and what it needs.

The loop, the sampler and the optimiser are not its business.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from torch import Tensor

from rlfactory.advantage.base import Advantage
from rlfactory.model.weights import POLICY
from rlfactory.rollout import Rollout, present

ModelT = TypeVar("ModelT")
BatchT = TypeVar("BatchT")


@dataclass(frozen=True)
class Loss:
    """A scalar to minimise, the network's outputs for the regularizer, and `[N]` values to log."""

    value: Tensor
    outputs: Any
    metrics: dict[str, Tensor]


class Algorithm(ABC, Generic[ModelT, BatchT]):
    """Rewards to advantages, samples to training items, items to a loss.

    `needs` is what a rollout must provide; `behaviour` names the weight set that samples;
    `advantage` is what appraises, where that is a choice of its own; `ratio_tolerance` is how far a
    ratio may be from 1 before the first update.
    """

    needs: ClassVar[Literal["transitions", "forward_process", "tokens"]]
    behaviour: ClassVar[str] = POLICY
    advantage: Advantage | None = None
    ratio_tolerance: float | None = None

    def trained_scores(self, main: str) -> list[str]:
        """The names of the scores that train; `main` is the reward's own."""
        return [main] if self.advantage is None else self.advantage.names(main)

    def appraise(self, rollout: Rollout, main: str) -> Rollout:
        """The rollout with its advantages, from rewards without NaN."""
        return present(self.advantage, "an advantage")(rollout, main)

    @abstractmethod
    def items(self, rollout: Rollout, model: ModelT, *, seed: int, iteration: int) -> BatchT:
        """All that learning from `rollout` takes, sample after sample."""

    @abstractmethod
    def loss(self, model: ModelT, batch: BatchT) -> Loss:
        """The mean loss over a batch's items."""
