"""How much does a text repeat itself? A cost, to be added to rewards that repetition would game."""

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, completions
from rlfactory.types import PositiveInt


def repeated_share(text: str, ngram: int) -> float:
    """The share of a text's word n-grams that occurred before, in [0, 1); 0 if it has none.

    Words are what white space separates, in lower case.
    """
    words = text.lower().split()
    grams = [tuple(words[i : i + ngram]) for i in range(len(words) - ngram + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


class Repetition(Reward):
    """`repetition`: minus the share of the completion's word n-grams that occurred before."""

    media = "texts"
    metadata = ()
    main = "repetition"
    good = 0.0

    def __init__(self, *, ngram: PositiveInt = 3) -> None:
        self.ngram = ngram

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in (-1, 0]."""
        shares = [-repeated_share(text, self.ngram) for text in completions(samples)]
        return {"repetition": torch.tensor(shares, dtype=torch.float32)}
