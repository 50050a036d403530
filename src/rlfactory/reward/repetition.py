"""Completions that do not repeat themselves."""

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, completions
from rlfactory.types import PositiveInt


class Repetition(Reward):
    """`repetition`: minus the share of n-grams of words that came before, from -1 to 0."""

    media = "texts"
    main = "repetition"
    good = 0.0

    def __init__(self, *, ngram: PositiveInt = 3) -> None:
        self.ngram = ngram

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`; 0 for a text without n-grams."""
        scores = [-repeated_share(text, self.ngram) for text in completions(samples)]
        return {"repetition": torch.tensor(scores, dtype=torch.float32)}


def repeated_share(text: str, n: int) -> float:
    """Of a text's n-grams of words, the share that came before."""
    words = text.lower().split()
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
