"""A reward model: a sequence classifier with a single score."""

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples, whole_texts
from rlfactory.reward.classifier import Classifier
from rlfactory.types import PositiveInt


class RewardModel(Reward):
    """`reward_model`: the score of prompt and completion, as it comes."""

    media = "texts"
    main = "reward_model"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str,
        batch_size: PositiveInt = 32,
        max_tokens: PositiveInt = 512,
    ) -> None:
        self.classifier = Classifier(
            device, path, dtype=torch.float32, batch_size=batch_size, max_tokens=max_tokens
        )
        if len(labels := self.classifier.labels) != 1:
            found = f"has {len(labels)} labels ({', '.join(labels)}), and a reward model has one"
            raise RewardError(f"reward.path={path} {found} score; try reward=sentiment")

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`."""
        return {"reward_model": self.classifier.logits(whole_texts(samples))[:, 0].contiguous()}
