"""Optimality of a walk on a graph: `randomwalks` of trlx (CarperAI/trlx, examples/randomwalks)."""

import torch
from torch import Tensor

from rlfactory.prompts.randomwalks import optimality
from rlfactory.reward.base import Reward, Samples, require_texts


class RandomWalks(Reward):
    """`optimality`: 1 for a shortest walk to the goal, 0 for one of ten nodes or an invalid one.

    The prompt is the first node, the completion the others, one letter each.
    """

    media = "texts"
    main = "optimality"
    best_score = 1.0

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        pairs = zip(samples.prompts, require_texts(samples), strict=True)
        scores = [optimality(start + rest) for start, rest in pairs]
        return {"optimality": torch.tensor(scores, dtype=torch.float32)}
