"""Whether samples still differ, or the policy has collapsed on one picture or one phrase."""

from collections.abc import Sequence

import torch
from torch import Tensor


def diversity(images: Tensor | None, texts: Sequence[str] | None, groups: Tensor) -> float:
    """`pairwise_distance` of pictures, `distinct` pairs of words of texts."""
    if images is not None:
        return pairwise_distance(images, groups)
    return distinct(texts or [], 2)


def distinct(texts: Sequence[str], n: int) -> float:
    """Different n-grams of words by all of them (arXiv 1510.03055); NaN where there are none."""
    grams = [
        tuple(words[i : i + n])
        for words in (text.lower().split() for text in texts)
        for i in range(len(words) - n + 1)
    ]
    return len(set(grams)) / len(grams) if grams else float("nan")


def pairwise_distance(images: Tensor, groups: Tensor) -> float:
    """Mean root-mean-square pixel distance in [0, 1] of the pairs of a group, over all groups.

    `images` is `[B, 3, H, W]`, uint8. NaN where no group has two images.
    """
    pixels = images.flatten(1)
    members = [pixels[groups == group].float() / 255 for group in torch.unique(groups)]
    distances = torch.cat([torch.pdist(rows) for rows in members])
    return float(distances.mean()) / float(pixels.shape[1] ** 0.5)
