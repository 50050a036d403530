"""KL penalty on the means of steps, not divided by their variance (Flow-Factory)."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import (
    Regularizer,
    WeightSet,
    mean_square,
    reference_step,
    weighted_penalty,
)
from rlfactory.regularizer.coefficient import Coefficient


class KLMean(Regularizer[ImageModel, Batch, Outputs]):
    """`kl = mean (mu - mu_ref)^2`, with the same weight for steps of all noise levels.

    Args:
        coefficient: Factor on the divergence; about 1e-2.
    """

    requires = "transitions"
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
        """`coefficient mean(kl)`, and kl `[N]`."""
        step_ref = reference_step(model, batch, outputs, self.reference, self.dynamics)
        kl = mean_square(outputs.require_step().mean - step_ref.mean)
        return weighted_penalty(self.coefficient, kl)
