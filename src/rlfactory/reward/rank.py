"""What a sample is worth among those of its prompt: its rank by any other reward."""

from collections.abc import Iterable

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, Samples


def group_ranks(scores: Tensor, groups: Tensor) -> Tensor:
    """How many of its group each of `scores` `[B]` exceeds, over the group's size, `[B]`.

    Of `n` different scores they are `0, 1 .. n - 1` over `n`; equal ones share the mean of their
    ranks. NaN stays NaN, and does not count.
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

    The scores of `reward` are reported too. A sample that is alone with its prompt has rank 0.
    """

    compares_group = True

    def __init__(self, *, reward: Reward) -> None:
        self.reward = reward
        self.main = f"{reward.main}_rank"
        self.media, self.metadata = reward.media, reward.metadata  # type: ignore[misc]

    def require(self, prompts: Iterable[Prompt]) -> None:
        """What the reward itself requires."""
        self.reward.require(prompts)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Ranks `[B]`, and what they are of."""
        found = self.reward.score(samples)
        return {self.main: group_ranks(found[self.reward.main], samples.groups), **found}
