"""The contract of a regularizer: a penalty added to the loss, and the divergence it measured."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.dynamics.base import Dynamics, Step
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.coefficient import Coefficient
from rlfactory.rollout import Rollout

ModelT = TypeVar("ModelT", contravariant=True)
BatchT = TypeVar("BatchT", contravariant=True)
OutputsT = TypeVar("OutputsT", contravariant=True)
WeightSet = Literal["reference", "old", "ema"]
KL = "kl/reference"
"""The name of a divergence where there is but one, whatever weight set it is from."""


class Regularizer(ABC, Generic[ModelT, BatchT, OutputsT]):
    """`needs`: what a batch must hold (`terms`: what its terms need); `process`: the forward
    process that it is written for, if only one; `reference`: the weight set to stay near, if any.

    A penalty that belongs in the reward is made by `shape`; the others only add to the loss.
    """

    needs: ClassVar[Literal["nothing", "velocity", "transitions", "tokens", "terms"]]
    process: ClassVar[Literal["flow", "vp"] | None] = None
    reference: WeightSet | None = None
    coefficient: Coefficient | None = None

    @abstractmethod
    def penalty(
        self, model: ModelT, batch: BatchT, outputs: OutputsT
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The scalar to add to the loss, with its gradient, and divergences `[N]` by metric."""

    def shape(self, model: ModelT, rollout: Rollout) -> Rollout:
        """The rollout with a `penalty` to take off its rewards, where that is its way."""
        del model
        return rollout

    @property
    def references(self) -> set[str]:
        """The weight sets that `penalty` compares with."""
        return set() if self.reference is None else {self.reference}

    @property
    def coefficients(self) -> dict[str, Coefficient]:
        """The coefficients by the metrics that show their values."""
        return {} if self.coefficient is None else {"kl/coefficient": self.coefficient}

    def steer(self, moment: str, metrics: Mapping[str, float], length: float, samples: int) -> None:
        """Let coefficients follow their mean divergences, those that move at this `moment`.

        `length`: tokens of a response, 1 for a picture; `samples`: how many showed the divergence.
        """
        kl, coefficient = metrics.get(KL), self.coefficient
        if coefficient is not None and coefficient.every == moment and kl is not None:
            coefficient.update(kl, kl * length, samples)


def weighed(coefficient: Coefficient, kl: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """A penalty in the loss, `coefficient mean kl`, and the divergences `[N]`.

    A coefficient of 0 measures: the other network runs, and nothing is added.
    """
    return coefficient.value * kl.mean(), {KL: kl.detach()}


@torch.no_grad()
def reference_prediction(model: ImageModel, batch: Batch, outputs: Outputs, name: str) -> Tensor:
    """What another weight set predicts for a batch, once for all who ask.

    Only this pass goes without a gradient.
    """
    if name not in outputs.others:
        with model.weights(name):
            outputs.others[name] = model.predict(batch.x, batch.t, batch.condition)
    return outputs.others[name]


def reference_step(
    model: ImageModel, batch: Batch, outputs: Outputs, name: str, dynamics: Dynamics
) -> Step:
    """The step that another weight set would have taken from the same place."""
    taken = batch.replay()
    prediction = reference_prediction(model, batch, outputs, name)
    return dynamics.step(batch.x, prediction, batch.t, taken.t_next, next=taken.next)


def step_divergence(
    model: ImageModel, batch: Batch, outputs: Outputs, name: str, dynamics: Dynamics
) -> Tensor:
    """True divergence of two normal steps, `mean (mu - mu_ref)^2 / (2 std^2)`, `[N]`."""
    other, step = reference_step(model, batch, outputs, name, dynamics), outputs.step_taken()
    return mean_square((step.mean - other.mean) / step.std) / 2


def mean_square(difference: Tensor) -> Tensor:
    """Mean over a sample's dimensions, `[N]`."""
    return difference.pow(2).flatten(1).mean(1)
