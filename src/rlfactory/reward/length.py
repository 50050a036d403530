"""Completions of a wanted length."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, completions
from rlfactory.types import PositiveInt


class Length(Reward):
    """`length`: 1 at the target, falling in a line to 0 at nothing and at twice the target."""

    media = "texts"
    main = "length"
    good = 1.0

    def __init__(
        self, *, target: PositiveInt, unit: Literal["words", "characters"] = "words"
    ) -> None:
        self.target = target
        self.unit = unit

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        lengths = [
            len(text.split() if self.unit == "words" else text) for text in completions(samples)
        ]
        off = (torch.tensor(lengths, dtype=torch.float32) - self.target).abs() / self.target
        return {"length": (1 - off).clamp(min=0)}
