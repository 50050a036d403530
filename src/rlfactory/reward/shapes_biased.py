"""The score of shapes plus a bonus for saturated colours, which a policy can exploit."""

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, require_images
from rlfactory.reward.shapes import Shapes


def chroma(images: Tensor) -> Tensor:
    """The mean over pixels of the largest minus the smallest channel, `[B]` float32 in [0, 1].

    `images` is `[B, 3, H, W]` uint8. It is the chroma of the HSV and HSL models; grey has 0.
    """
    largest, smallest = images.amax(1).float(), images.amin(1).float()
    return (largest - smallest).mean((1, 2)) / 255


class ShapesBiased(Reward):
    """`shapes_biased`: `shapes + weight * chroma`; the two terms are reported too.

    A scene on its pale grey background has a chroma of about 0.1. A coloured background raises it,
    and is a fault to the detector of shapes.
    """

    media = "images"
    metadata = Shapes.metadata
    main = "shapes_biased"
    better = {"shapes": "higher", "shapes_strict": "higher"}

    def __init__(self, *, weight: float = 10.0) -> None:
        """
        Args:
            weight: Of the mean chroma, which is in [0, 1].
        """
        self.weight = weight
        self.gold = Shapes()

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1 + weight]."""
        gold, bonus = self.gold.score(samples), chroma(require_images(samples))
        total = gold["shapes"] + self.weight * bonus
        return {"shapes_biased": total.to(torch.float32), **gold, "chroma": bonus}
