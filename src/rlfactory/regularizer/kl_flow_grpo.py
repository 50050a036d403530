"""KL penalty on steps as in Flow-GRPO's code, which lacks the step's length."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import Regularizer, WeightSet, step_divergence, weighted_penalty
from rlfactory.regularizer.coefficient import Coefficient


class KLFlowGRPO(Regularizer[ImageModel, Batch, Outputs]):
    """`kl = mean (mu - mu_ref)^2 / (2 g^2)`, which is `kl_gaussian` times `-dt`.

    The std of a step is `g sqrt(-dt)`, but the published code divides by g alone, so that short
    steps have less weight.

    Args:
        coefficient: Factor on the divergence; about 4e-2.
    """

    requires = "transitions"
    process = "flow"
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
        length = (batch.t - batch.require_replayed().t_next).float()
        kl = step_divergence(model, batch, outputs, self.reference, self.dynamics)
        return weighted_penalty(self.coefficient, length * kl)
