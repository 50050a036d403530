"""Divergence of a step's means, `mean (mu - mu_ref)^2`, not scaled by its noise (Flow-Factory)."""

from torch import Tensor

from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import Regularizer, WeightSet, mean_square, reference_step
from rlfactory.rollout import Batch, Outputs
from rlfactory.types import NonNegative


class KLMean(Regularizer[ImageModel, Batch, Outputs]):
    """Weighs the noisy steps as the clean ones. Its scale wants a beta about 1e-2."""

    needs = "transitions"
    reference: WeightSet

    def __init__(
        self, dynamics: Dynamics, *, beta: NonNegative = 1e-2, reference: WeightSet = "reference"
    ) -> None:
        self.dynamics = dynamics
        self.beta = beta
        self.reference = reference

    def penalty(self, model: ImageModel, batch: Batch, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """`beta mean kl` and the divergences `[N]`."""
        other = reference_step(model, batch, self.reference, self.dynamics)
        kl = mean_square(outputs.step_taken().mean - other.mean)
        return self.beta * kl.mean(), kl.detach()
