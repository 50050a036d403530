"""True divergence of two normal steps, `mean (mu - mu_ref)^2 / (2 std^2)` (TempFlow-GRPO)."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import Regularizer, WeightSet, step_divergence, weighed
from rlfactory.regularizer.coefficient import Coefficient


class KLGaussian(Regularizer[ImageModel, Batch, Outputs]):
    """`std` is the whole deviation, `g sqrt(-dt)`; a mean over dimensions, as the likelihood."""

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
        kl = step_divergence(model, batch, outputs, self.reference, self.dynamics)
        return weighed(self.coefficient, kl)
