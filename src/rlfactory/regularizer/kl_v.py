"""Divergence of velocities, `mean (v - v_ref)^2` (DiffusionNFT, AWM, Flow-Factory)."""

from torch import Tensor

from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import Regularizer, WeightSet, mean_square, reference_prediction
from rlfactory.rollout import Batch, Outputs
from rlfactory.types import NonNegative


class KLVelocity(Regularizer[ImageModel, Batch, Outputs]):
    """Needs no transitions, so any algorithm takes it. Its scale wants a beta of 1e-4 to 3e-3."""

    needs = "velocity"
    reference: WeightSet

    def __init__(self, *, beta: NonNegative = 1e-4, reference: WeightSet = "reference") -> None:
        self.beta = beta
        self.reference = reference

    def penalty(self, model: ImageModel, batch: Batch, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """`beta mean kl` and the divergences `[N]`."""
        other = reference_prediction(model, batch, self.reference)
        kl = mean_square(outputs.prediction - other)
        return self.beta * kl.mean(), kl.detach()
