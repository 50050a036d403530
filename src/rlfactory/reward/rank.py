"""The rank of a sample within its group, by any other reward (Flow-Factory's `PickScore_Rank`)."""

from collections.abc import Iterable

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, Samples, directions, score_checked


def group_ranks(scores: Tensor, groups: Tensor) -> Tensor:
    """The number of scores in its group that each of `scores` `[B]` exceeds, over the group's size.

    The ranks of `n` different scores are `0/n, 1/n .. (n - 1)/n`; equal scores share the mean of
    their ranks. NaN stays NaN and is not counted in the size. `groups` is `[B]` int64.
    """
    ranks = torch.full_like(scores, torch.nan)
    known = ~scores.isnan()
    for group in torch.unique(groups[known]):
        rows = (known & (groups == group)).nonzero().flatten()
        own = scores[rows]
        below = (own[:, None] > own).sum(1)
        equal = (own[:, None] == own).sum(1) - 1
        ranks[rows] = (below + equal / 2) / len(rows)
    return ranks


class Rank(Reward):
    """`NAME_rank`: the rank within the group by the main score of `reward`, in [0, 1).

    The scores of `reward` are reported too. A sample alone in its group has rank 0.
    """

    compares_group = True

    def __init__(self, *, reward: Reward) -> None:
        self.reward = reward
        self.main = f"{reward.main}_rank"
        self.media, self.metadata = reward.media, reward.metadata  # type: ignore[misc]
        self.better = directions(reward)  # type: ignore[misc]

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        self.reward.check_prompts(prompts)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Ranks `[B]`, and the scores of the wrapped reward."""
        scores = score_checked(self.reward, samples)
        return {self.main: group_ranks(scores[self.reward.main], samples.groups), **scores}
