"""PPO's clipped surrogate, the one loss that images, whole samples and tokens share."""

import torch
from torch import Tensor


def clipped_surrogate(
    log_ratio: Tensor, advantage: Tensor, clip_range: float | None
) -> tuple[Tensor, Tensor]:
    """`max(-A r, -A clip(r, 1 - c, 1 + c))`, and the ratio r (arXiv 1707.06347, eq. 7).

    Without a `clip_range` it is `-A r`.
    """
    ratio = log_ratio.exp()
    if clip_range is None:
        return -advantage * ratio, ratio
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    return torch.maximum(-advantage * ratio, -advantage * clipped), ratio


def ratio_metrics(ratio: Tensor, clip_range: float | None) -> dict[str, Tensor]:
    """What to watch of a ratio, itemwise: its value, its clipping, its distance from one."""
    ratio = ratio.detach()
    deviation = (ratio - 1).abs()
    outside = torch.zeros_like(ratio) if clip_range is None else (deviation > clip_range).float()
    return {
        "ratio/mean": ratio,
        "ratio/clip_fraction": outside,
        "ratio/max_dev": deviation,
        "kl/approx": 0.5 * ratio.log() ** 2,
    }
