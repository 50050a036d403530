"""KL penalty on velocities with the weight of an SDE's steps (AWM's "ELBO" option)."""

from typing import Any

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import ImageDivergence, mean_square
from rlfactory.utils.types import Positive


def sde_std(sigma: Tensor, noise_level: float, low: float) -> Tensor:
    """`a sqrt(sigma / (1 - sigma))` `[N]`, the noise of Flow-GRPO's SDE at times `[N]`, with the
    `noise_level` a.

    Sigma is at least `low` in the numerator, since at 0 a weight `1 / std^2` is infinite, and at
    most 0.99 in the denominator, as published.
    """
    return noise_level * (sigma.clamp(min=low) / (1 - sigma.clamp(0, 0.99))).sqrt()


class KLELBO(ImageDivergence):
    """`kl = mean (v - v_ref)^2 / (2 std^2)` with std from `sde_std` (AWM: `train_sd3_awm.py`).

    Up to the step's length it is the KL divergence of Flow-GRPO's SDE steps, but needs no
    transitions. Times near 0 have the largest weight.

    Args:
        noise_level: See `sde_std`; AWM: 0.7.
        low: Lower bound of the time, since at 0 the weight is infinite.
    """

    process = "flow"

    def __init__(
        self, *, noise_level: Positive = 0.7, low: Positive = 1e-3, **options: Any
    ) -> None:
        super().__init__(**options)
        self.noise_level = noise_level
        self.low = low

    def divergence(self, model: ImageModel, batch: Batch, outputs: Outputs) -> Tensor:
        std = sde_std(batch.t.float(), self.noise_level, self.low)
        difference = outputs.prediction - self.compared(model, batch, outputs)
        return mean_square(difference) / (2 * std**2)
