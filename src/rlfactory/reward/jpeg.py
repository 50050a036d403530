"""How well a picture compresses: the size of its JPEG file (DDPO, Black et al. 2023, section 6).

With `kB` the bytes of the file over 1000, compressibility is `-kB` and incompressibility `kB`.
"""

from io import BytesIO

import torch
from PIL import Image
from torch import Tensor

from rlfactory.pillow import all_to_pil
from rlfactory.reward.base import Reward, Samples, pictures
from rlfactory.types import Positive, PositiveInt


def jpeg_kilobytes(images: Tensor, quality: int) -> Tensor:
    """Sizes `[B]` in thousands of bytes of the JPEG files of `images` `[B, 3, H, W]` uint8."""
    return torch.tensor([_size(picture, quality) / 1000 for picture in all_to_pil(images)])


def _size(image: Image.Image, quality: int) -> int:
    file = BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.tell()


def _checked(quality: int) -> int:
    if not 1 <= quality <= 100:
        raise ValueError(f"reward.quality={quality}: a JPEG's quality is from 1 to 100")
    return quality


class Compressibility(Reward):
    """`compressibility`: `-kB / unit`; `jpeg_kb`: the size itself, for people.

    DDPO's unit is 1 kB; Flow-GRPO's is 500 kB.
    """

    media = "images"
    metadata = ()
    main = "compressibility"

    def __init__(self, *, quality: PositiveInt = 95, unit: Positive = 1.0) -> None:
        self.quality = _checked(quality)
        self.unit = unit

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, at most 0."""
        size = jpeg_kilobytes(pictures(samples), self.quality)
        return {"compressibility": -size / self.unit, "jpeg_kb": size}


class Incompressibility(Reward):
    """`incompressibility`: `kB / unit`; `jpeg_kb`: the size itself, for people.

    The unit is 1 kB, in DDPO and in Flow-GRPO.
    """

    media = "images"
    metadata = ()
    main = "incompressibility"

    def __init__(self, *, quality: PositiveInt = 95, unit: Positive = 1.0) -> None:
        self.quality = _checked(quality)
        self.unit = unit

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, at least 0."""
        size = jpeg_kilobytes(pictures(samples), self.quality)
        return {"incompressibility": size / self.unit, "jpeg_kb": size}
