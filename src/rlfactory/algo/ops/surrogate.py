"""PPO's clipped surrogate objective and the metrics of its ratio, for images and tokens."""

import torch
from torch import Tensor


def clipped_surrogate(
    log_ratio: Tensor, advantage: Tensor, clip_range: float | None
) -> tuple[Tensor, Tensor]:
    """`max(-A r, -A clip(r, 1 - c, 1 + c))`, PPO's objective (arXiv 1707.06347, eq. 7) negated.

    Args:
        log_ratio: log r = log p - log p_old, with gradient, `[N]`.
        advantage: A, `[N]`.
        clip_range: c; None: the loss is `-A r`.

    Returns:
        The losses `[N]` and the ratios r `[N]`.
    """
    ratio = log_ratio.exp()
    if clip_range is None:
        return -advantage * ratio, ratio
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    return torch.maximum(-advantage * ratio, -advantage * clipped), ratio


def ratio_metrics(ratio: Tensor, clip_range: float | None) -> dict[str, Tensor]:
    """Metrics of ratios r `[N]`, each `[N]`: r, whether it is outside the clip range, `|r - 1|`,
    and the approximate KL divergence `(log r)^2 / 2`.
    """
    ratio = ratio.detach()
    deviation = (ratio - 1).abs()
    outside = torch.zeros_like(ratio) if clip_range is None else (deviation > clip_range).float()
    return {
        "ratio/mean": ratio,
        "ratio/clip_fraction": outside,
        "ratio/max_dev": deviation,
        "kl/approx": 0.5 * ratio.log() ** 2,
    }
