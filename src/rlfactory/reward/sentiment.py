"""How surely a classifier gives a text the wanted label."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples, completions, whole_texts
from rlfactory.reward.classifier import Classifier
from rlfactory.types import PositiveInt


class Sentiment(Reward):
    """`sentiment`: of the wanted label the probability, the logit, or the log-odds.

    Prompt and completion are judged together, or the completion alone. Without the attention mask,
    behind a `prefix` and in float16 it is what a well-known walkthrough trained on.
    """

    media = "texts"
    main = "sentiment"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "zoo:sentiment",
        label: str = "POSITIVE",
        output: Literal["prob", "logit", "log_odds"] = "prob",
        judge: Literal["text", "completion"] = "text",
        use_attention_mask: bool = True,
        prefix: str = "",
        dtype: Literal["float32", "float16"] = "float32",
        batch_size: PositiveInt = 64,
        max_tokens: PositiveInt = 256,
    ) -> None:
        self.classifier = Classifier(
            device,
            path,
            dtype=getattr(torch, dtype),
            batch_size=batch_size,
            max_tokens=max_tokens,
            use_attention_mask=use_attention_mask,
        )
        self.index = _index_of(label, self.classifier.labels)
        self.output = output
        self.judge = judge
        self.prefix = prefix
        self.dtype: torch.dtype = getattr(torch, dtype)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`."""
        texts = whole_texts(samples) if self.judge == "text" else completions(samples)
        logits = self.classifier.logits([self.prefix + text for text in texts])
        return {"sentiment": self._output(logits).contiguous()}

    def _output(self, logits: Tensor) -> Tensor:
        if self.output == "logit":
            return logits[:, self.index]
        if self.output == "log_odds":
            log_prob = logits.log_softmax(1)
            others = log_prob[:, [i for i in range(logits.shape[1]) if i != self.index]]
            return log_prob[:, self.index] - others.logsumexp(1)
        # half precision rounds here too: its scores near 1 are multiples of 2^-11
        return logits.to(self.dtype).softmax(1)[:, self.index].float()


def _index_of(label: str, labels: list[str]) -> int:
    for i, name in enumerate(labels):
        if name.lower() == label.lower():
            return i
    raise RewardError(f"reward.label={label}: this classifier has {', '.join(labels)}")
