"""The reward of a run that is only sampled from."""

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples


class NoReward(Reward):
    """Scores nothing: every score is NaN."""

    media = "images"
    main = "none"

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """NaN `[B]`."""
        return {self.main: torch.full((len(samples.prompts),), torch.nan)}
