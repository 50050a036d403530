"""Repetition penalty: a cost to add to rewards that repeated n-grams would game."""

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, require_texts
from rlfactory.utils.types import PositiveInt


def repeated_share(text: str, ngram: int) -> float:
    """The share of a text's word n-grams that occurred earlier in it, in [0, 1).

    Words are separated by white space and compared in lower case. A text with fewer words than
    `ngram` scores 0.
    """
    words = text.lower().split()
    grams = [tuple(words[i : i + ngram]) for i in range(len(words) - ngram + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


class Repetition(Reward):
    """`repetition`: minus the share of the completion's word n-grams that occurred before."""

    media = "texts"
    main = "repetition"
    best_score = 0.0

    def __init__(self, *, ngram: PositiveInt = 3) -> None:
        """
        Args:
            ngram: >= 1: words in an n-gram.
        """
        self.ngram = ngram

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in (-1, 0]."""
        shares = [-repeated_share(text, self.ngram) for text in require_texts(samples)]
        return {"repetition": torch.tensor(shares, dtype=torch.float32)}
