"""Edited pictures beside those that they were made from."""

from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor

from rlfactory.prompts.ops.pictured import PicturedText
from rlfactory.utils.images import from_pil


def beside_sources(images: Tensor, prompts: Sequence[str]) -> Tensor:
    """Images `[B, 3, H, W]` uint8, each to the right of its prompt's picture, `[B, 3, H, 2 W]`.

    As they are where a prompt has no picture, and videos.
    """
    pictures = [prompt.open() for prompt in prompts if isinstance(prompt, PicturedText)]
    if len(pictures) < len(images) or images.ndim != 4 or not pictures:
        return images
    height, width = images.shape[-2:]
    resized = [one.resize((width, height), Image.Resampling.BICUBIC) for one in pictures]
    return torch.cat([torch.stack([from_pil(one) for one in resized]), images.cpu()], -1)
