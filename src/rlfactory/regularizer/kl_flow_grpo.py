"""Divergence of two steps as Flow-GRPO publishes it, `mean (mu - mu_ref)^2 / (2 g^2)`."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import Regularizer, WeightSet, step_divergence, weighed
from rlfactory.regularizer.coefficient import Coefficient


class KLFlowGRPO(Regularizer[ImageModel, Batch, Outputs]):
    """`kl_gaussian` times `|dt|`: the deviation of a step is `g sqrt(-dt)`, and the published code
    divides by `g` alone. So it weighs short steps less, and wants a coefficient about 4e-2.
    """

    needs = "transitions"
    process = "flow"
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
        length = (batch.t - batch.replay().t_next).float()
        kl = step_divergence(model, batch, outputs, self.reference, self.dynamics)
        return weighed(self.coefficient, length * kl)
