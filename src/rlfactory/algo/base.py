"""The contract of an algorithm: a loss, and what it needs. The loop, the sampler and the optimiser
are not its business.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from rlfactory.model.base import ImageModel
from rlfactory.model.weights import POLICY
from rlfactory.rollout import Batch, Outputs, Rollout


@dataclass(frozen=True)
class Loss:
    """A scalar to minimise, the network's outputs for the regularizer, and sums to log over `[N]`
    items.
    """

    value: Tensor
    outputs: Outputs
    metrics: dict[str, Tensor]


class Algorithm(ABC):
    """Rewards to advantages, samples to training items, items to a loss.

    `needs` is what a rollout must provide; `grouped` says that advantages compare the samples of
    one prompt; `behaviour` names the weight set that samples; `ratio_tolerance` is how far a ratio
    may be from 1 before the first update.
    """

    needs: ClassVar[Literal["transitions", "forward_process", "tokens"]]
    grouped: ClassVar[bool] = True
    behaviour: ClassVar[str] = POLICY
    ratio_tolerance: float | None = None

    @abstractmethod
    def advantages(self, rewards: Tensor, groups: Tensor) -> Tensor:
        """`[B]` from rewards `[B]` without NaN and group numbers `[B]`."""

    @abstractmethod
    def items(self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int) -> Batch:
        """Every network evaluation that learning from `rollout` takes, sample after sample."""

    @abstractmethod
    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """The mean loss over a batch's items."""

    def after_iteration(self, model: ImageModel, step: int) -> dict[str, float]:
        """Move the algorithm's own weight sets; `step` counts optimiser steps. Returns metrics."""
        del model, step
        return {}
