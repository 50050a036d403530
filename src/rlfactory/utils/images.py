"""Tensors to Pillow images, without importing torch."""

from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from torch import Tensor


def to_pil(image: "Tensor") -> Image.Image:
    """An image `[3, H, W]` uint8, on any device."""
    return Image.fromarray(image.permute(1, 2, 0).cpu().contiguous().numpy())


def batch_to_pil(images: "Tensor") -> list[Image.Image]:
    """Images `[B, 3, H, W]` uint8, on any device."""
    return [Image.fromarray(row) for row in images.permute(0, 2, 3, 1).cpu().contiguous().numpy()]
