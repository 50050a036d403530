"""How short a walk on a graph is."""

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, completions
from rlfactory.zoo.graph import optimality


class RandomWalks(Reward):
    """`optimality`: 1 for a shortest walk to the goal, 0 for none (trlx's `randomwalks`)."""

    media = "texts"
    main = "optimality"
    good = 1.0

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` of prompt and completion, in [0, 1]."""
        pairs = zip(samples.prompts, completions(samples), strict=True)
        found = [optimality(start + walk) for start, walk in pairs]
        return {"optimality": torch.tensor(found, dtype=torch.float32)}
