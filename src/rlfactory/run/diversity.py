"""Whether the samples of one prompt still differ, or the policy has collapsed on one picture."""

import torch
from torch import Tensor


def pairwise_distance(images: Tensor, groups: Tensor) -> float:
    """Mean root-mean-square pixel distance in [0, 1] of the pairs of a group, over all groups.

    `images` is `[B, 3, H, W]`, uint8. NaN where no group has two images.
    """
    pixels = images.flatten(1)
    members = [pixels[groups == group].float() / 255 for group in torch.unique(groups)]
    distances = torch.cat([torch.pdist(rows) for rows in members])
    return float(distances.mean()) / float(pixels.shape[1] ** 0.5)
