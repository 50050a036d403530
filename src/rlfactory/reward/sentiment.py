"""What does a classifier feel in a text? The probability of one of its labels."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples
from rlfactory.reward.classifier import Classifier, Judged, Precision, judged_texts
from rlfactory.types import PositiveInt


def log_odds(logits: Tensor, label: int, *, independent: bool) -> Tensor:
    """`log p / (1 - p)` `[B]` float32 of a label, from logits `[B, labels]`.

    `p` is the softmax's, or the sigmoid's where the labels are `independent`.
    """
    logits = logits.float()
    if independent:
        return logits[:, label]
    others = [i for i in range(logits.shape[1]) if i != label]
    return logits[:, label] - logits[:, others].logsumexp(1)


class Sentiment(Reward):
    """`sentiment`: the probability of `label`, its logit, or its log-odds.

    `judge` is what is read: the prompt and the completion, or the completion alone. The classifier
    of a well-known walkthrough of PPO was given `prefix="<|endoftext|>"`, no attention mask and
    float16; there a probability is rounded to float16 as well.
    """

    media = "texts"
    metadata = ()
    main = "sentiment"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "zoo:sentiment",
        label: str = "POSITIVE",
        output: Literal["prob", "logit", "log_odds"] = "prob",
        judge: Judged = "text",
        use_attention_mask: bool = True,
        prefix: str = "",
        dtype: Precision = "float32",
        batch_size: PositiveInt = 64,
        max_tokens: PositiveInt = 512,
    ) -> None:
        self.output: Literal["prob", "logit", "log_odds"] = output
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
        self.label = _index(self.classifier.labels, label, path)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`: in [0, 1] if a probability, otherwise without bounds."""
        logits = self.classifier.logits(judged_texts(samples, self.judge, self.prefix))
        return {"sentiment": self._verdict(logits)}

    def _verdict(self, logits: Tensor) -> Tensor:
        if self.output == "logit":
            return logits[:, self.label].float()
        odds = log_odds(logits, self.label, independent=self.classifier.independent)
        # through the model's own precision, as a softmax there would round it
        return odds if self.output == "log_odds" else odds.sigmoid().to(logits.dtype).float()


def _index(labels: list[str], label: str, path: str) -> int:
    names = [name.lower() for name in labels]
    if label.lower() not in names:
        raise RewardError(f"reward.label={label} is no label of {path}; it has {', '.join(labels)}")
    return names.index(label.lower())
