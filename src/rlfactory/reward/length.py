"""Length reward: how close a completion comes to a target length. No network."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, require_texts
from rlfactory.utils.types import PositiveInt


class Length(Reward):
    """`length`: `max(0, 1 - |n - target| / target)`; `words` or `characters`: `n` itself.

    `n` is the length of the completion without its prompt: words separated by white space, or
    characters.
    """

    media = "texts"
    main = "length"
    best_score = 1.0

    def __init__(
        self, *, target: PositiveInt, unit: Literal["words", "characters"] = "words"
    ) -> None:
        """
        Args:
            target: >= 1: the target length of a completion.
            unit: words | characters.
        """
        self.target = target
        self.unit = unit

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        texts = require_texts(samples)
        counts = [len(text.split()) if self.unit == "words" else len(text) for text in texts]
        count = torch.tensor(counts, dtype=torch.float32)
        closeness = (1 - (count - self.target).abs() / self.target).clamp(min=0)
        return {"length": closeness, self.unit: count}
