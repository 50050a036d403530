"""No reward: for algorithms that learn from the data."""

from typing import Any, ClassVar

from torch import Tensor

from rlfactory.reward.base import Reward, Samples


class NoReward(Reward):
    """Scores nothing, so that evaluations draw no samples for it."""

    media: ClassVar[Any] = None
    gives_scores = False
    main = ""

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """No scores."""
        return {}
