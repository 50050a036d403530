"""True divergence of two normal steps, `mean (mu - mu_ref)^2 / (2 std^2)` (TempFlow-GRPO)."""

from torch import Tensor

from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import Regularizer, WeightSet, mean_square, reference_step
from rlfactory.rollout import Batch, Outputs
from rlfactory.types import NonNegative


class KLGaussian(Regularizer[ImageModel, Batch, Outputs]):
    """`std` is the whole deviation, `g sqrt(-dt)`; a mean over dimensions, as the likelihood."""

    needs = "transitions"
    reference: WeightSet

    def __init__(
        self, dynamics: Dynamics, *, beta: NonNegative = 4e-3, reference: WeightSet = "reference"
    ) -> None:
        self.dynamics = dynamics
        self.beta = beta
        self.reference = reference

    def penalty(self, model: ImageModel, batch: Batch, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """`beta mean kl` and the divergences `[N]`."""
        other = reference_step(model, batch, self.reference, self.dynamics)
        step = outputs.step_taken()
        kl = mean_square((step.mean - other.mean) / step.std) / 2
        return self.beta * kl.mean(), kl.detach()
