"""Whether the samples of one prompt still differ, or the policy has collapsed on one picture."""

import torch
from torch import Tensor


def pairwise_distance(images: Tensor, groups: Tensor) -> float:
    """Mean root-mean-square pixel distance, in [0, 1], between the images `[B, 3, H, W]` of a group, over all groups.

    NaN where no group has two images.
    """
    pixels = images.flatten(1).float() / 255
    square = torch.cdist(pixels, pixels) / pixels.shape[1] ** 0.5
    pairs = (groups[:, None] == groups) & ~torch.eye(len(groups), dtype=torch.bool)
    return float(square[pairs].mean())
