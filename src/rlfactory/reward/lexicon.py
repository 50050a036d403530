"""Lexicon sentiment: VADER's compound score (Hutto and Gilbert 2014). No network."""

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, not_installed, require_texts


class Lexicon(Reward):
    """`lexicon`: VADER's compound score of the completion, in [-1, 1]; 0 is neutral.

    Needs the package vaderSentiment (the extra `text`); RewardError without it.
    """

    media = "texts"
    main = "lexicon"
    best_score = 1.0

    def __init__(self) -> None:
        try:
            from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
        except ImportError as error:
            raise not_installed("lexicon", "text") from error
        self._analyzer = SentimentIntensityAnalyzer()

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [-1, 1]."""
        texts = require_texts(samples)
        compound = [self._analyzer.polarity_scores(text)["compound"] for text in texts]
        return {"lexicon": torch.tensor(compound, dtype=torch.float32)}
