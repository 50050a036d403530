"""Compressibility rewards: the size of an image's JPEG file (DDPO, Black et al. 2023, section 6).

With `kB` the file's bytes / 1000, compressibility is `-kB` and incompressibility `kB`. No network.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import ClassVar

import torch
from PIL import Image
from torch import Tensor

from rlfactory.reward.base import Direction, Reward, Samples, require_images
from rlfactory.utils.images import batch_to_pil
from rlfactory.utils.types import Positive, PositiveInt


def jpeg_kilobytes(images: Tensor, quality: int) -> Tensor:
    """Sizes `[B]` in thousands of bytes of the JPEG files of `images` `[B, 3, H, W]` uint8."""
    return torch.tensor([_bytes(image, quality) / 1000 for image in batch_to_pil(images)])


def _bytes(image: Image.Image, quality: int) -> int:
    file = BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.tell()


def checked_quality(quality: int) -> int:
    """`quality`; ValueError unless it is one of a JPEG."""
    if not 1 <= quality <= 100:
        raise ValueError(f"reward.quality={quality}: is the quality of a JPEG; allowed is 1 to 100")
    return quality


class Compressibility(Reward):
    """`compressibility`: `-kB / unit`; `jpeg_kb`: the size itself, reported only.

    `unit` is 1 kB in DDPO and 500 kB in Flow-GRPO.
    """

    media = "images"
    main = "compressibility"
    better: ClassVar[Mapping[str, Direction]] = {"jpeg_kb": "lower"}
    sign: ClassVar[int] = -1

    def __init__(self, *, quality: PositiveInt = 95, unit: Positive = 1.0) -> None:
        """
        Args:
            quality: JPEG quality, 1 to 100.
            unit: > 0: kilobytes that make a score of 1; Flow-GRPO's compressibility takes 500.
        """
        self.quality = checked_quality(quality)
        self.unit = unit

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, at most 0 for compressibility, at least 0 for incompressibility."""
        size = jpeg_kilobytes(require_images(samples), self.quality)
        return {self.main: self.sign * size / self.unit, "jpeg_kb": size}


class Incompressibility(Compressibility):
    """`incompressibility`: `kB / unit`; `jpeg_kb`: the size itself, reported only.

    `unit` is 1 kB in DDPO and in Flow-GRPO.
    """

    main = "incompressibility"
    better = {"jpeg_kb": "higher"}
    sign = 1
