"""What does a reward model think of a text? Its one score, as it is."""

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples
from rlfactory.reward.classifier import Classifier, Judged, Precision, judged_texts
from rlfactory.types import PositiveInt


class RewardModel(Reward):
    """`reward_model`: the only logit of a sequence classifier, as trained on preferences.

    `judge` is what is read: the prompt and the completion, or the completion alone.
    """

    media = "texts"
    metadata = ()
    main = "reward_model"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str,
        judge: Judged = "text",
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
                " model has one; for the probability of a label take reward=sentiment"
            )

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` without bounds."""
        logits = self.classifier.logits(judged_texts(samples, self.judge, self.prefix))
        return {"reward_model": logits[:, 0].float()}
