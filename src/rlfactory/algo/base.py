"""The contract of an algorithm: a loss, and what it needs.

The loop, the sampler and the optimiser are not its business.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from torch import Tensor

from rlfactory.model.weights import POLICY
from rlfactory.rollout import Rollout

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

    `needs` is what a rollout must provide; `grouped` says that advantages compare the samples of
    one prompt; `behaviour` names the weight set that samples; `ratio_tolerance` is how far a ratio
    may be from 1 before the first update; `surrogate` that the loss hands over a `log_ratio` of a
    surrogate of the likelihood.
    """

    needs: ClassVar[Literal["transitions", "forward_process", "tokens"]]
    grouped: ClassVar[bool] = True
    behaviour: ClassVar[str] = POLICY
    ratio_tolerance: float | None = None
    surrogate: ClassVar[bool] = False

    @abstractmethod
    def appraise(self, rollout: Rollout, rewards: Tensor) -> Rollout:
        """The rollout with its advantages, from rewards `[B]` without NaN."""

    @abstractmethod
    def items(self, rollout: Rollout, model: ModelT, *, seed: int, iteration: int) -> BatchT:
        """All that learning from `rollout` takes, sample after sample."""

    @abstractmethod
    def loss(self, model: ModelT, batch: BatchT) -> Loss:
        """The mean loss over a batch's items."""

    def after_iteration(self, model: ModelT, step: int) -> dict[str, float]:
        """Move the algorithm's own weight sets; `step` counts optimiser steps. Returns metrics."""
        del model, step
        return {}
