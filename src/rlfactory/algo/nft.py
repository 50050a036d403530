"""DiffusionNFT (arXiv 2509.16117): learns from final samples only.

Moves the velocity towards well-rewarded samples and away from poorly rewarded ones.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.algo.ops.noised_items import ForwardAlgorithm, compared_predictions, self_normalised
from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import OLD
from rlfactory.utils.types import Positive

AdvantageMode = Literal["all", "positive_only", "negative_only", "one_only", "binary"]


def apply_advantage_mode(advantage: Tensor, mode: AdvantageMode) -> Tensor:
    """Advantages `[N]` as `advantage_mode` uses them.

    `all` keeps them, `positive_only` and `negative_only` set the others to 0, `one_only` makes
    positive ones 1 and the others 0, `binary` keeps the sign.
    """
    match mode:
        case "all":
            return advantage
        case "positive_only":
            return advantage.clamp(min=0)
        case "negative_only":
            return advantage.clamp(max=0)
        case "one_only":
            return (advantage > 0).to(advantage)
        case "binary":
            return advantage.sign()


def optimality_probability(advantage: Tensor, advantage_clip: float) -> Tensor:
    """`r = clip(A, -c, c) / (2 c) + 1/2`, `[N]` in [0, 1]: probability that a sample is optimal."""
    clipped = advantage.clamp(-advantage_clip, advantage_clip)
    return clipped / (2 * advantage_clip) + 0.5


def implicit_losses(
    v: Tensor, v_old: Tensor, x0: Tensor, to_x0: Callable[[Tensor], Tensor], beta: float
) -> tuple[Tensor, Tensor]:
    """Losses of the implicit positive and negative policies:

        v+ = v_old + beta (v - v_old),   v- = 2 v_old - v+,
        l  = mean (x0_hat - x0)^2 / w,    w = stop_gradient(mean |x0_hat - x0|), at least 1e-5.

    Args:
        v: The policy's prediction, `[N, C, H, W]`.
        v_old: The old policy's prediction, `[N, C, H, W]`.
        x0: The samples' latents, `[N, C, H, W]`.
        to_x0: Turns a prediction into the clean sample x0_hat that it implies.
        beta: Strength of the guidance.

    Returns:
        l+ and l-, each `[N]` float64.
    """
    # both are exactly v_old at v = v_old, so that with r = 1/2 the gradient is exactly 0 there
    positive = torch.lerp(v_old, v, beta)
    negative = 2 * v_old - positive
    return self_normalised(to_x0(positive) - x0), self_normalised(to_x0(negative) - x0)


class NFT(ForwardAlgorithm):
    """With `r` from `optimality_probability` and l+, l- from `implicit_losses`,

        loss = c mean( r l+ / beta + (1 - r) l- / beta ).

    The weight set `old` samples; it follows the policy as the config key `old` says. At `v = v_old`
    the loss does not depend on r, but its gradient does, by the factor 2 r - 1.

    Args:
        advantage_clip: c, the limit of the advantage's magnitude.
        beta: > 0: distance of the implicit policies from the old one; published 1 or 0.1.
        advantage_mode: all | positive_only | negative_only | one_only | binary: how advantages are
            used.
    """

    compared_weight_sets = ("old",)
    behaviour = OLD

    def __init__(
        self,
        *given: Any,
        beta: Positive = 1.0,
        advantage_clip: Positive = 5.0,
        advantage_mode: AdvantageMode = "all",
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.beta = beta
        self.advantage_clip = advantage_clip
        self.advantage_mode: AdvantageMode = advantage_mode

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """The class's formula; `kl/old` is `mean (v - v_old)^2`."""
        v, others = compared_predictions(model, batch, self.compared_weight_sets)
        v_old = others[OLD]

        def to_x0(prediction: Tensor) -> Tensor:
            return model.forward_process.to_x0(batch.x, prediction, batch.t)

        positive, negative = implicit_losses(v, v_old, batch.x0, to_x0, self.beta)
        advantage = apply_advantage_mode(batch.advantage, self.advantage_mode)
        r = optimality_probability(advantage, self.advantage_clip)
        losses = self.advantage_clip * (r * positive + (1 - r) * negative) / self.beta
        distance = (v.detach() - v_old).flatten(1).pow(2).mean(1)
        metrics = {"loss/policy": losses.detach(), "kl/old": distance}
        return Loss(losses.mean(), Outputs(v, by_weight_set=others), metrics)
