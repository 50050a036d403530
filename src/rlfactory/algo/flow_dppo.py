"""Flow-DPPO (arXiv 2606.11025): GRPO with a mask by the exact KL divergence instead of a clip."""

from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.algo.ops.step_replay import StepAlgorithm, StepLosses, old_step_mean
from rlfactory.algo.ops.surrogate import clipped_surrogate, moves_away, ratio_metrics
from rlfactory.batch import Batch
from rlfactory.dynamics.base import Step, gaussian_kl
from rlfactory.utils.types import Positive

Divergence = Literal["kl", "mean_shift"]


class FlowDPPO(StepAlgorithm):
    """With `r = p / p_old` of a step, A the advantage of the sample that it led to, and D the KL
    divergence between the step's normal distributions under the old policy and the policy,

        loss = mean (0 if D >= kl_threshold and A log r > 0 else -A r).

    Both have the same standard deviation s, so D is exact: `mean (mu - mu_old)^2 / (2 s^2)`, over
    the latent dimensions, as log p is.

    Args:
        kl_threshold: The divergence from which on the mask acts, in nats per dimension.
        divergence: `kl`: D. `mean_shift`: D without the division by `s^2`.
    """

    stores_step_mean = True
    decided_by = {"divides_by_step_std": ("divergence", {"kl": True})}
    ratio_tolerance = 1e-5  # GRPO's at its default clip range; there is no clip to derive it from

    def __init__(
        self,
        *given: Any,
        kl_threshold: Positive = 1e-5,
        divergence: Divergence = "kl",
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.kl_threshold = kl_threshold
        self.divergence: Divergence = divergence

    def step_losses(self, step: Step, log_ratio: Tensor, batch: Batch) -> StepLosses:
        std = step.std if self.divergence == "kl" else torch.ones_like(step.std)
        kl = gaussian_kl(step.mean.detach(), old_step_mean(step, batch), std)
        masked = (kl >= self.kl_threshold) & moves_away(log_ratio.detach(), batch.advantage)
        losses, ratio = clipped_surrogate(log_ratio, batch.advantage, None)
        measured = {"ratio/clip_fraction": masked.float(), "kl/step": kl}
        return losses.masked_fill(masked, 0.0), ratio_metrics(ratio, None) | measured
