"""The contract of a regularizer: a penalty added to the loss, and the divergence it measured."""

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics, Step
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.coefficient import Coefficient
from rlfactory.rollout import Batch, Rollout

ModelT = TypeVar("ModelT", contravariant=True)
BatchT = TypeVar("BatchT", contravariant=True)
OutputsT = TypeVar("OutputsT", contravariant=True)
WeightSet = Literal["reference", "old", "ema"]


class Regularizer(ABC, Generic[ModelT, BatchT, OutputsT]):
    """`needs`: what a batch must hold; `reference`: the weight set to stay near, if any.

    A penalty that belongs in the reward is made by `shape`; the others only add to the loss.
    """

    needs: ClassVar[Literal["nothing", "velocity", "transitions", "tokens"]]
    reference: WeightSet | None = None
    coefficient: Coefficient | None = None

    @abstractmethod
    def penalty(self, model: ModelT, batch: BatchT, outputs: OutputsT) -> tuple[Tensor, Tensor]:
        """The scalar to add to the loss, with its gradient, and the divergence itself `[N]`."""

    def shape(self, model: ModelT, rollout: Rollout) -> Rollout:
        """The rollout with a `penalty` to take off its rewards, where that is its way."""
        del model
        return rollout


@torch.no_grad()
def reference_prediction(model: ImageModel, batch: Batch, name: str) -> Tensor:
    """What another weight set predicts for a batch. Only this pass goes without a gradient."""
    with model.weights(name):
        return model.predict(batch.x, batch.t, batch.condition)


def reference_step(model: ImageModel, batch: Batch, name: str, dynamics: Dynamics) -> Step:
    """The step that another weight set would have taken from the same place."""
    taken = batch.replay()
    prediction = reference_prediction(model, batch, name)
    return dynamics.step(batch.x, prediction, batch.t, taken.t_next, next=taken.next)


def mean_square(difference: Tensor) -> Tensor:
    """Mean over a sample's dimensions, `[N]`."""
    return difference.pow(2).flatten(1).mean(1)
