"""Rendered scenes and their captions, the training data of the image models."""

import numpy as np
import torch
from torch import Tensor

from rlfactory.prompts.ops.scenes import (
    CATEGORIES,
    arrange,
    background,
    caption,
    render,
    sample_scene,
)


def draw_scenes(count: int, seed: int) -> tuple[Tensor, list[str]]:
    """`count` pictures `[N, 3, 64, 64]` (uint8) and their captions, the categories in equal
    parts.
    """
    rng = np.random.default_rng(seed)
    images, captions = np.empty((count, 64, 64, 3), np.uint8), []
    for i in range(count):
        scene = sample_scene(CATEGORIES[i % len(CATEGORIES)], rng)
        images[i] = render(arrange(scene, rng), background(rng))
        captions.append(caption(scene, rng))
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), captions
