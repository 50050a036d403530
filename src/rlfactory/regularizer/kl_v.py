"""Divergence of velocities, `mean (v - v_ref)^2` (DiffusionNFT, AWM, Flow-Factory)."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import (
    Regularizer,
    WeightSet,
    mean_square,
    reference_prediction,
    weighed,
)
from rlfactory.regularizer.coefficient import Coefficient


class KLVelocity(Regularizer[ImageModel, Batch, Outputs]):
    """Needs no transitions, so any algorithm takes it. Its scale wants a coefficient of 1e-4 to
    3e-3 from the reference; AWM's is 1 from the slow `old` policy.
    """

    needs = "velocity"
    reference: WeightSet
    coefficient: Coefficient

    def __init__(self, *, coefficient: Coefficient, reference: WeightSet = "reference") -> None:
        self.coefficient = coefficient
        self.reference = reference

    def penalty(
        self, model: ImageModel, batch: Batch, outputs: Outputs
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """`coefficient mean kl` and the divergences `[N]`."""
        other = reference_prediction(model, batch, outputs, self.reference)
        kl = mean_square(outputs.prediction - other)
        return weighed(self.coefficient, kl)
