"""Divergence of velocities in the measure of an SDE's steps, as AWM offers it ("ELBO")."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import (
    Regularizer,
    WeightSet,
    mean_square,
    reference_prediction,
    weighed,
)
from rlfactory.regularizer.coefficient import Coefficient
from rlfactory.types import Positive


def sde_std(sigma: Tensor, noise_level: float, low: float) -> Tensor:
    """`noise_level sqrt(sigma / (1 - sigma))`, `[N]`: the noise of Flow-GRPO's SDE at a time.

    The published code keeps the lower `sigma` at .99 at most; `low` is the least that the upper
    one counts as, for at 0 the noise is none and a weight `1 / std^2` infinite.
    """
    return noise_level * (sigma.clamp(min=low) / (1 - sigma.clamp(0, 0.99))).sqrt()


class KLELBO(Regularizer[ImageModel, Batch, Outputs]):
    """`mean (v - v_ref)^2 / (2 std^2)`, with `std` the noise that an SDE would have at the time.

    Needs no transitions. Up to the step's length it is the divergence that steps of this SDE would
    have; late times weigh most. AWM: `train_sd3_awm.py`, `noise_level` .7.
    """

    needs = "velocity"
    process = "flow"
    reference: WeightSet
    coefficient: Coefficient

    def __init__(
        self,
        *,
        coefficient: Coefficient,
        reference: WeightSet = "reference",
        noise_level: Positive = 0.7,
        low: Positive = 1e-3,
    ) -> None:
        self.coefficient = coefficient
        self.reference = reference
        self.noise_level = noise_level
        self.low = low

    def penalty(
        self, model: ImageModel, batch: Batch, outputs: Outputs
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """`coefficient mean kl` and the divergences `[N]`."""
        other = reference_prediction(model, batch, outputs, self.reference)
        std = sde_std(batch.t.float(), self.noise_level, self.low)
        kl = mean_square(outputs.prediction - other) / (2 * std**2)
        return weighed(self.coefficient, kl)
