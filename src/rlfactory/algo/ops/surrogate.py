"""PPO's clipped surrogate objective and the metrics of its ratio, for images and tokens."""

import torch
from torch import Tensor


def clipped_surrogate(
    log_ratio: Tensor,
    advantage: Tensor,
    clip_range: float | None,
    *,
    clip_high: float | None = None,
    dual_clip: float | None = None,
) -> tuple[Tensor, Tensor]:
    """`max(-A r, -A clip(r, 1 - c, 1 + c))`, PPO's objective (arXiv 1707.06347, eq. 7) negated.

    Args:
        log_ratio: log r = log p - log p_old, with gradient, `[N]`.
        advantage: A, `[N]`.
        clip_range: c; None: the loss is `-A r`.
        clip_high: The upper bound is `1 + clip_high` (DAPO's clip-higher); None: `1 + c`.
        dual_clip: Where A < 0 the loss is at most `-A dual_clip` (arXiv 1912.09729); None: no
            bound.

    Returns:
        The losses `[N]` and the ratios r `[N]`.
    """
    ratio = log_ratio.exp()
    if clip_range is None:
        return -advantage * ratio, ratio
    high = clip_range if clip_high is None else clip_high
    clipped = ratio.clamp(1 - clip_range, 1 + high)
    losses = torch.maximum(-advantage * ratio, -advantage * clipped)
    if dual_clip is not None:
        bounded = torch.minimum(losses, -advantage * dual_clip)
        losses = torch.where(advantage < 0, bounded, losses)
    return losses, ratio


def moves_away(log_ratio: Tensor, advantage: Tensor) -> Tensor:
    """Whether the gradient moves the policy further from the old one, `[N]` bool.

    That is where a good step is likelier than it was, or a bad one less likely.

    Args:
        log_ratio: log p - log p_old, `[N]`.
        advantage: `[N]`.
    """
    return advantage * log_ratio > 0


def ratio_metrics(
    ratio: Tensor, clip_range: float | None, clip_high: float | None = None
) -> dict[str, Tensor]:
    """Metrics of ratios r `[N]`, each `[N]`: r, whether it is outside the clip range, `|r - 1|`,
    and the approximate KL divergence `(log r)^2 / 2`.
    """
    ratio = ratio.detach()
    deviation = (ratio - 1).abs()
    outside = torch.zeros_like(ratio)
    if clip_range is not None:
        high = clip_range if clip_high is None else clip_high
        outside = ((ratio - 1 > high) | (1 - ratio > clip_range)).float()
    return {
        "ratio/mean": ratio,
        "ratio/clip_fraction": outside,
        "ratio/max_dev": deviation,
        "kl/approx": 0.5 * ratio.log() ** 2,
    }
