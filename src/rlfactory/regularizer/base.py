"""The contract of a regularizer: a penalty added to the loss, and the divergence that it
measured.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics, Step
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Batch, Outputs

WeightSet = Literal["reference", "old", "ema"]


class Regularizer(ABC):
    """`needs` says what a batch must hold; `reference` names the weight set to stay near, if
    any.
    """

    needs: ClassVar[Literal["nothing", "velocity", "transitions"]]
    reference: WeightSet | None = None

    @abstractmethod
    def penalty(self, model: ImageModel, batch: Batch, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """The scalar to add to the loss, with its gradient, and the divergence itself `[N]`."""


@torch.no_grad()
def reference_prediction(model: ImageModel, batch: Batch, name: str) -> Tensor:
    """What another weight set predicts for a batch. Only this forward pass goes without a
    gradient.
    """
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
