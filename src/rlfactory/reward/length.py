"""How near is a text to the length that was asked for? The cheapest reward of texts."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, completions
from rlfactory.types import PositiveInt


class Length(Reward):
    """`length`: `max(0, 1 - |n - target| / target)`; `words` or `characters`: `n` itself.

    `n` counts in the completion alone: what white space separates, or every character.
    """

    media = "texts"
    metadata = ()
    main = "length"
    good = 1.0

    def __init__(
        self, *, target: PositiveInt, unit: Literal["words", "characters"] = "words"
    ) -> None:
        self.target = target
        self.unit = unit

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        texts = completions(samples)
        counts = [len(text.split()) if self.unit == "words" else len(text) for text in texts]
        count = torch.tensor(counts, dtype=torch.float32)
        near = (1 - (count - self.target).abs() / self.target).clamp(min=0)
        return {"length": near, self.unit: count}
