"""KL penalty on normal steps, the true KL divergence (TempFlow-GRPO)."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import StepDivergence


class KLGaussian(StepDivergence):
    """`kl = mean (mu - mu_ref)^2 / (2 std^2)` with `std = g sqrt(-dt)`, the step's full deviation.

    A mean over dimensions, like the log-probability.
    """

    divides_by_step_std = True

    def divergence(self, model: ImageModel, batch: Batch, outputs: Outputs) -> Tensor:
        return self.gaussian(model, batch, outputs)
