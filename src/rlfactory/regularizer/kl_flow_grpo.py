"""KL penalty on steps as in Flow-GRPO's code, which lacks the step's length."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import StepDivergence


class KLFlowGRPO(StepDivergence):
    """`kl = mean (mu - mu_ref)^2 / (2 g^2)`, which is `kl_gaussian` times `-dt`.

    The std of a step is `g sqrt(-dt)`, but the published code divides by g alone, so that short
    steps have less weight.

    Args:
        coefficient: Factor on the divergence; about 4e-2.
    """

    process = "flow"
    divides_by_step_std = True

    def divergence(self, model: ImageModel, batch: Batch, outputs: Outputs) -> Tensor:
        length = (batch.t - batch.require_replayed().t_next).float()
        return length * self.gaussian(model, batch, outputs)
