"""Sentiment by a lexicon, without a network: VADER (Hutto & Gilbert 2014)."""

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples, completions


class Lexicon(Reward):
    """`lexicon`: VADER's compound score of the completion, from -1 to 1, times `sign`."""

    media = "texts"
    main = "lexicon"

    def __init__(self, *, sign: float = 1.0) -> None:
        try:
            from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
        except ModuleNotFoundError as error:
            message = "reward=lexicon needs a package: pip install 'rlfactory[text]'"
            raise RewardError(message) from error
        self.analyzer = SentimentIntensityAnalyzer()
        self.sign = sign

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`."""
        found = [self.analyzer.polarity_scores(text)["compound"] for text in completions(samples)]
        return {"lexicon": self.sign * torch.tensor(found, dtype=torch.float32)}
