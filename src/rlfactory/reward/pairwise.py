"""Pairwise rewards: the mean probability that a sample is preferred to the others of its group."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, Samples, score_checked
from rlfactory.utils.pytree import index_rows
from rlfactory.utils.types import Media, Positive


class Pairwise(ABC):
    """The contract of a pairwise judge, which compares two samples of one prompt.

    Attributes:
        main: Its name; `Wins` reports the score `<main>_wins`.
        media: What is compared, as of a reward.
        metadata: The keys that each prompt's metadata must have.
    """

    main: str
    media: Media = "images"
    metadata: tuple[str, ...] = ()

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """As of a reward; by default nothing."""
        return

    @abstractmethod
    def prefers(self, samples: Samples) -> Tensor:
        """Compare the samples of one group.

        Args:
            samples: `n` samples of one prompt.

        Returns:
            `[n, n]`, the probability that the row's sample is better than the column's; NaN where
            two could not be compared. The diagonal is not read.
        """


class Preference(Pairwise):
    """The Bradley-Terry preference (1952) of another reward: `sigmoid((s_1 - s_2) / unit)`.

    PickScore's logits were trained as such, with a `unit` of 1.
    """

    def __init__(self, *, reward: Reward, unit: Positive = 1.0) -> None:
        self.reward, self.unit = reward, unit
        self.main, self.media, self.metadata = reward.main, reward.media, reward.metadata

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        self.reward.check_prompts(prompts)

    def prefers(self, samples: Samples) -> Tensor:
        """Probabilities `[n, n]`."""
        scores = score_checked(self.reward, samples)[self.reward.main]
        return ((scores[:, None] - scores) / self.unit).sigmoid()


class Wins(Reward):
    """`NAME_wins`: the mean probability that `judge` prefers a sample to another of its group.

    NaN where it could be compared with no other one; 0.5 for a sample alone in its group.
    """

    compares_group = True

    def __init__(self, *, judge: Pairwise) -> None:
        self.judge = judge
        self.main = f"{judge.main}_wins"
        self.media, self.metadata = judge.media, judge.metadata  # type: ignore[misc]

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        listed = list(prompts)
        super().check_prompts(listed)
        self.judge.check_prompts(listed)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        wins = torch.full((len(samples.prompts),), 0.5)
        for group in torch.unique(samples.groups):
            rows = (samples.groups == group).nonzero().flatten()
            if len(rows) > 1:
                wins[rows] = mean_wins(self.judge.prefers(index_rows(samples, rows)))
        return {self.main: wins}


def mean_wins(probability: Tensor) -> Tensor:
    """The mean `[n]` of each row of `[n, n]`, without the diagonal and NaN."""
    others = probability.float().masked_fill(
        torch.eye(len(probability), dtype=torch.bool), torch.nan
    )
    return others.nanmean(1)
