"""PPO's clipped surrogate, the one loss that GRPO on images and PPO on tokens share."""

import torch
from torch import Tensor


def clipped_surrogate(
    log_ratio: Tensor, advantage: Tensor, clip_range: float
) -> tuple[Tensor, Tensor]:
    """`max(-A r, -A clip(r, 1 - c, 1 + c))` elementwise, and the ratio r (arXiv 1707.06347, eq.
    7).
    """
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    return torch.maximum(-advantage * ratio, -advantage * clipped), ratio


def ratio_metrics(ratio: Tensor, clip_range: float) -> dict[str, Tensor]:
    """What to watch of a ratio, itemwise: its value, whether it was clipped, how far it is from
    one.
    """
    ratio = ratio.detach()
    deviation = (ratio - 1).abs()
    return {
        "ratio/mean": ratio,
        "ratio/clip_fraction": (deviation > clip_range).float(),
        "ratio/max_dev": deviation,
        "kl/approx": 0.5 * ratio.log() ** 2,
    }
