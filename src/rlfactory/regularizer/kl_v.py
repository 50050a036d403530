"""KL penalty on velocities (DiffusionNFT, AWM, Flow-Factory)."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import (
    Regularizer,
    WeightSet,
    mean_square,
    reference_prediction,
    weighted_penalty,
)
from rlfactory.regularizer.coefficient import Coefficient


class KLVelocity(Regularizer[ImageModel, Batch, Outputs]):
    """`kl = mean (v - v_ref)^2`; works with every algorithm on images.

    Args:
        coefficient: Factor on the divergence; 1e-4 to 3e-3 for the weight set `reference`, 1 for
            AWM's slow `old` policy.
    """

    requires = "velocity"
    reference: WeightSet
    coefficient: Coefficient

    def __init__(self, *, coefficient: Coefficient, reference: WeightSet = "reference") -> None:
        self.coefficient = coefficient
        self.reference = reference

    def penalty(
        self, model: ImageModel, batch: Batch, outputs: Outputs
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """`coefficient mean(kl)`, and kl `[N]`."""
        v_ref = reference_prediction(model, batch, outputs, self.reference)
        kl = mean_square(outputs.prediction - v_ref)
        return weighted_penalty(self.coefficient, kl)
