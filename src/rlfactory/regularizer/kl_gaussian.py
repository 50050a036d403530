"""KL penalty on normal steps, the true KL divergence (TempFlow-GRPO)."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import Regularizer, WeightSet, step_divergence, weighted_penalty
from rlfactory.regularizer.coefficient import Coefficient


class KLGaussian(Regularizer[ImageModel, Batch, Outputs]):
    """`kl = mean (mu - mu_ref)^2 / (2 std^2)` with `std = g sqrt(-dt)`, the step's full deviation.

    A mean over dimensions, like the log-probability.
    """

    requires = "transitions"
    divides_by_step_std = True
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
        kl = step_divergence(model, batch, outputs, self.reference, self.dynamics)
        return weighted_penalty(self.coefficient, kl)
