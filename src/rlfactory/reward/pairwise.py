"""Rewards by comparison: how often a sample is preferred to the others of its prompt."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples
from rlfactory.types import Positive


class Pairwise(ABC):
    """A judge of two samples of one prompt; `main` is its name."""

    main: str

    @abstractmethod
    def prefers(self, samples: Samples) -> Tensor:
        """Of `n` samples of one prompt the probability `[n, n]` that the row's is the better one.

        NaN where two could not be compared; the diagonal is not read.
        """


class Preference(Pairwise):
    """The preference that scores imply (Bradley and Terry 1952): `sigmoid((s_1 - s_2) / unit)`.

    PickScore's logits were trained so, with a `unit` of 1.
    """

    def __init__(self, *, reward: Reward, unit: Positive = 1.0) -> None:
        self.reward, self.unit = reward, unit
        self.main = reward.main

    def prefers(self, samples: Samples) -> Tensor:
        """Probabilities `[n, n]`."""
        scores = self.reward.score(samples)[self.reward.main]
        return ((scores[:, None] - scores) / self.unit).sigmoid()


class Wins(Reward):
    """`NAME_wins`: the mean probability that `judge` prefers a sample to another of its prompt.

    NaN where it could be compared with none of them; 0.5 where there is no other.
    """

    metadata = ()
    compares_group = True

    def __init__(self, *, judge: Pairwise) -> None:
        self.judge = judge
        self.main = f"{judge.main}_wins"

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Shares `[B]`, in [0, 1]."""
        found = torch.full((len(samples.prompts),), 0.5)
        for group in torch.unique(samples.groups):
            rows = (samples.groups == group).nonzero().flatten()
            if len(rows) > 1:
                found[rows] = mean_wins(self.judge.prefers(_of(samples, rows)))
        return {self.main: found}


def mean_wins(probability: Tensor) -> Tensor:
    """The mean `[n]` of each row of `[n, n]` over what is known, but for the diagonal."""
    others = probability.float().masked_fill(
        torch.eye(len(probability), dtype=torch.bool), torch.nan
    )
    return others.nanmean(1)


def _of(samples: Samples, rows: Tensor) -> Samples:
    def some(values: Sequence[Any] | None) -> Any:
        return None if values is None else [values[i] for i in rows.tolist()]

    return Samples(
        prompts=some(samples.prompts),
        metadata=some(samples.metadata),
        groups=samples.groups[rows],
        images=None if samples.images is None else samples.images[rows],
        texts=some(samples.texts),
    )
