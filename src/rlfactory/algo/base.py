"""The contract of an algorithm: a loss, and what it needs.

The loop, the sampler and the optimiser are not its business.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from torch import Tensor

from rlfactory.advantage.base import Advantage
from rlfactory.model.weights import POLICY
from rlfactory.nest import present
from rlfactory.rollout import Rollout

ModelT = TypeVar("ModelT")
ItemsT = TypeVar("ItemsT")
BatchT = TypeVar("BatchT")


@dataclass(frozen=True)
class Loss:
    """A scalar to minimise, the network's outputs for the regularizer, and `[N]` values to log."""

    value: Tensor
    outputs: Any
    metrics: dict[str, Tensor]


class Algorithm(ABC, Generic[ModelT, ItemsT, BatchT]):
    """Rewards to advantages, samples to training items, batches of items to a loss.

    `needs` is what a rollout must provide, `keeps_mean` whether its steps' means too; `compares`
    names the weight sets that the loss evaluates, `behaviour` the one that samples; `on_policy`
    says that an iteration has room for one update; `surrogate` that `scores` stand in for
    likelihoods and the loss hands over their `log_ratio`, with `shortcut` unasked where learning is
    on-policy; `only_dynamics` names the one class of dynamics that it is derived for;
    `ratio_tolerance` is how far a ratio may be from 1 before the first update.
    """

    needs: ClassVar[Literal["transitions", "forward_process", "tokens"]]
    compares: ClassVar[tuple[str, ...]] = ()
    keeps_mean: ClassVar[bool] = False
    on_policy: ClassVar[bool] = False
    surrogate: ClassVar[bool] = False
    only_dynamics: ClassVar[str | None] = None
    behaviour: str = POLICY
    shortcut: bool = True
    ratio_tolerance: float | None = None
    advantage: Advantage | None = None

    def appraise(self, rollout: Rollout, main: str) -> Rollout:
        """The rollout with its advantages; `main` names the reward that trains, without NaN."""
        return present(self.advantage, "an advantage")(rollout, main)

    def trained_scores(self, main: str) -> list[str]:
        """The names of the scores that train; `main` is the reward's own."""
        return [main] if self.advantage is None else self.advantage.names(main)

    def compared(self, samples: Rollout) -> Rollout:
        """The samples of one update, of all processes, with what they are compared with each other
        for. Light: no latents, transitions or conditions.
        """
        return samples

    @abstractmethod
    def items(self, rollout: Rollout, model: ModelT, *, seed: int, iteration: int) -> ItemsT:
        """All that learning from `rollout` takes, sample after sample."""

    def scores(self, model: ModelT, batch: BatchT) -> Tensor:
        """Surrogate log-likelihoods of a batch's items, `[N]`, where the algorithm has them."""
        del model, batch
        raise NotImplementedError

    @abstractmethod
    def loss(self, model: ModelT, batch: BatchT) -> Loss:
        """The mean loss over a batch's items."""
