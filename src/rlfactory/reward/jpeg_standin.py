"""A differentiable stand-in for the size of a JPEG file; the file's own size has no gradient.

The steps of JPEG (ITU-T T.81) up to quantisation, as libjpeg takes them by default: YCbCr, colour
at half resolution, cosine transforms of blocks of 8 x 8 pixels, divided by the tables of a quality.
In place of rounding and Huffman codes a coefficient c, in units of its table's entry, is counted as

    (BITS / 2) log2(1 + c^2)  bits,

little where it would be rounded to 0, and BITS more each time it doubles. The three constants are
fitted to file sizes at qualities 50 to 95; `tests/reward/test_jpeg_standin.py` says how near it is.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from torch import Tensor

from rlfactory.reward.base import Direction, Metadata, Reward, Samples, require_images
from rlfactory.reward.jpeg import checked_quality, jpeg_kilobytes
from rlfactory.utils.types import Positive, PositiveInt

BLOCK = 8
BITS = 3.5
END = 5.5
"""Bits of a block beside its coefficients."""
HEADER = 0.635
"""Thousands of bytes of a file beside its blocks."""
YCBCR = (
    (0.299, 0.587, 0.114),
    (-0.168736, -0.331264, 0.5),
    (0.5, -0.418688, -0.081312),
)


@cache
def _cosines() -> Tensor:
    """The orthonormal DCT-II `[8, 8]`: frequency, place."""
    place = (2 * torch.arange(BLOCK, dtype=torch.float64) + 1) * math.pi / (2 * BLOCK)
    rows = torch.cos(torch.arange(BLOCK)[:, None] * place) * math.sqrt(2 / BLOCK)
    rows[0] /= math.sqrt(2)
    return rows


@cache
def quantisation(quality: int) -> list[Tensor]:
    """libjpeg's tables `[8, 8]` of luma and chroma at a quality, 1 to 100, as Pillow has them."""
    file = BytesIO()
    Image.new("RGB", (BLOCK, BLOCK)).save(file, "JPEG", quality=quality)
    file.seek(0)
    with JpegImageFile(file) as image:
        tables = [torch.tensor(table, dtype=torch.float64) for table in image.quantization.values()]
    return [table.view(BLOCK, BLOCK) for table in tables]


def coefficients(plane: Tensor, table: Tensor) -> Tensor:
    """Cosine transforms of a plane `[B, H, W]`, in units of `table`: `[B, blocks, 8, 8]`.

    The last rows and columns are repeated to whole blocks.
    """
    height, width = plane.shape[1:]
    padding = (0, -width % BLOCK, 0, -height % BLOCK)
    padded = F.pad(plane[:, None], padding, mode="replicate")
    unfolded = F.unfold(padded, BLOCK, stride=BLOCK).transpose(1, 2)
    blocks = unfolded.reshape(*unfolded.shape[:2], BLOCK, BLOCK)
    cosines = _cosines().to(plane)
    transformed: Tensor = cosines @ blocks @ cosines.T
    return transformed / table.to(plane)


def estimated_kilobytes(pixels: Tensor, quality: int) -> Tensor:
    """About how many thousands of bytes the JPEG files of images `[B, 3, H, W]`, float in [0, 1],
    have at a quality from 1 to 100: `[B]` with gradient.
    """
    planes = torch.einsum("pc,bchw->bphw", torch.tensor(YCBCR).to(pixels), 255 * pixels)
    colours = F.avg_pool2d(planes[:, 1:], 2, ceil_mode=True, count_include_pad=False)
    luma, chroma = quantisation(quality)
    found = [
        coefficients(planes[:, 0] - 128, luma),
        *(coefficients(plane, chroma) for plane in colours.unbind(1)),
    ]
    bits = torch.zeros(len(pixels)).to(pixels)
    for part in found:
        bits = bits + END * part.shape[1] + BITS / 2 * torch.log2(1 + part**2).sum((1, 2, 3))
    return HEADER + bits / 8000


class JpegStandIn(Reward):
    """`jpeg_standin`: an estimate of the JPEG file's kilobytes that has a gradient, negative for
    small files; `jpeg_kb`: the size itself, reported only.
    """

    media = "images"
    main = "jpeg_standin"
    differentiable = True
    better: ClassVar[Mapping[str, Direction]] = {}

    def __init__(
        self,
        *,
        quality: PositiveInt = 95,
        unit: Positive = 1.0,
        goal: Literal["small", "large"] = "small",
    ) -> None:
        """
        Args:
            quality: JPEG quality, 1 to 100.
            unit: > 0: kilobytes that make a score of 1.
            goal: small | large: which files have the higher score.
        """
        self.quality, self.unit = checked_quality(quality), unit
        self.sign = -1 if goal == "small" else 1
        self.better = {"jpeg_kb": "lower" if goal == "small" else "higher"}  # type: ignore[misc]

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, of the images as bytes."""
        images = require_images(samples)
        with torch.no_grad():
            standin = self.score_pixels(images / 255, samples.prompts, samples.metadata)
        return {"jpeg_standin": standin, "jpeg_kb": jpeg_kilobytes(images, self.quality)}

    def score_pixels(self, pixels: Tensor, prompts: Sequence[str], metadata: Metadata) -> Tensor:
        return self.sign * estimated_kilobytes(pixels, self.quality) / self.unit
