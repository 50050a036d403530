"""Divergence of a step's means, `mean (mu - mu_ref)^2`, not scaled by its noise (Flow-Factory)."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import (
    Regularizer,
    WeightSet,
    mean_square,
    reference_step,
    weighed,
)
from rlfactory.regularizer.coefficient import Coefficient


class KLMean(Regularizer[ImageModel, Batch, Outputs]):
    """Weighs the noisy steps as the clean ones. Its scale wants a coefficient about 1e-2."""

    needs = "transitions"
    reference: WeightSet
    coefficient: Coefficient

    def __init__(
        self, dynamics: Dynamics, *, coefficient: Coefficient, reference: WeightSet = "reference"
    ) -> None:
        self.dynamics = dynamics
        self.coefficient = coefficient
        self.reference = reference

    def penalty(
        self, model: ImageModel, batch: Batch, outputs: Outputs
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """`coefficient mean kl` and the divergences `[N]`."""
        other = reference_step(model, batch, outputs, self.reference, self.dynamics)
        kl = mean_square(outputs.step_taken().mean - other.mean)
        return weighed(self.coefficient, kl)
