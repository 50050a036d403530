"""How positive are the words of a text? VADER's rules, with no network."""

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples, completions


class Lexicon(Reward):
    """`lexicon`: VADER's compound score of the completion, in [-1, 1]; 0 is neutral.

    Source: Hutto and Gilbert 2014. RewardError without the extra `text`.
    """

    media = "texts"
    metadata = ()
    main = "lexicon"
    good = 1.0

    def __init__(self) -> None:
        try:
            from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
        except ImportError as error:
            raise RewardError(
                "reward=lexicon needs a package that is not installed; "
                "type pip install 'rlfactory[text]'"
            ) from error
        self._analyzer = SentimentIntensityAnalyzer()

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [-1, 1]."""
        texts = completions(samples)
        compound = [self._analyzer.polarity_scores(text)["compound"] for text in texts]
        return {"lexicon": torch.tensor(compound, dtype=torch.float32)}
