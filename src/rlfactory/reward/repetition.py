"""Repetition penalty: a cost to add to rewards that repeated n-grams would game."""

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, require_texts
from rlfactory.utils.text import repeated_share
from rlfactory.utils.types import PositiveInt


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
