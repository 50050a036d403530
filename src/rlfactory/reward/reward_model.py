"""Reward model: the logit of a sequence classifier with one label, trained on preferences."""

import torch
from torch import Tensor

from rlfactory.reward.backbones.classifier import Classifier, Precision, ScoredText, scored_texts
from rlfactory.reward.base import Reward, RewardError, Samples
from rlfactory.utils.types import PositiveInt


class RewardModel(Reward):
    """`reward_model`: the only logit of a sequence classifier, as preference training leaves it.

    `judge` is the text that is scored: "text", the prompt and the completion, or "completion".
    RewardError where the classifier can't be loaded or has several labels.
    """

    media = "texts"
    metadata = ()
    main = "reward_model"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str,
        judge: ScoredText = "text",
        use_attention_mask: bool = True,
        prefix: str = "",
        dtype: Precision = "float32",
        batch_size: PositiveInt = 64,
        max_tokens: PositiveInt = 512,
    ) -> None:
        self.judge = judge
        self.prefix = prefix
        self.classifier = Classifier(
            path,
            device,
            dtype=dtype,
            use_attention_mask=use_attention_mask,
            batch_size=batch_size,
            max_tokens=max_tokens,
        )
        labels = self.classifier.labels
        if len(labels) != 1:
            raise RewardError(
                f"reward.path={path} has {len(labels)} labels ({', '.join(labels)}), and a reward"
                " model has one; for the probability of a label type reward=sentiment"
            )

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, unbounded; NaN for an empty text."""
        logits = self.classifier.logits(scored_texts(samples, self.judge, self.prefix))
        return {"reward_model": logits[:, 0].float()}
