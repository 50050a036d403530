"""Shapes scored by a detector that errs, always alike for pictures of one mean colour."""

import hashlib

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, require_images
from rlfactory.reward.shapes import Shapes
from rlfactory.utils.types import Fraction, PositiveInt


def content_keys(images: Tensor, cell: int) -> Tensor:
    """The mean colour of each image in steps of `cell` levels, `[B, 3]` int64.

    `images` is `[B, 3, H, W]` uint8.
    """
    return (images.float().mean((2, 3)) / cell).floor().long()


def uniform_of(key: tuple[int, ...]) -> float:
    """A number in [0, 1) that depends on the key alone, by its SHA-256 hash."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


class ShapesNoisy(Reward):
    """`shapes_noisy`: the score `shapes`, replaced where the detector errs; both are reported.

    An image's mean colour, in steps of `cell` levels, decides whether it errs: for a share of
    `error_rate` of these colours it does, and then half of them score 1 and half 0, whatever the
    image shows. So a policy can raise this score by a colour that always passes.
    """

    media = "images"
    metadata = Shapes.metadata
    main = "shapes_noisy"
    better = {"shapes": "higher", "shapes_strict": "higher"}
    best_score = 1.0

    def __init__(self, *, error_rate: Fraction = 0.3, cell: PositiveInt = 8) -> None:
        """
        Args:
            error_rate: [0, 1]: share of the mean colours for which it errs: half score 1, half 0.
            cell: >= 1: levels of each channel that count as one colour.
        """
        self.error_rate = error_rate
        self.cell = cell
        self.gold = Shapes()

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        gold = self.gold.score(samples)
        keys = content_keys(require_images(samples), self.cell).tolist()
        drawn = torch.tensor([uniform_of(tuple(key)) for key in keys])
        noisy = gold["shapes"].where(drawn >= self.error_rate, 0.0)
        noisy = noisy.where(drawn >= self.error_rate / 2, 1.0)
        return {"shapes_noisy": noisy, **gold}
