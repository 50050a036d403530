"""Sentiment reward: the probability of one label of a text classifier."""

from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.reward.backbones.classifier import ClassifierReward, scored_texts
from rlfactory.reward.base import RewardError, Samples


def log_odds(logits: Tensor, label: int, *, independent: bool) -> Tensor:
    """`log(p / (1 - p))` `[B]` float32 of a label, from logits `[B, labels]`.

    `p` is the softmax probability, or the sigmoid's where the labels are `independent`.
    """
    logits = logits.float()  # half precision would lose the difference of two large logits
    if independent:
        return logits[:, label]
    others = [i for i in range(logits.shape[1]) if i != label]
    return logits[:, label] - logits[:, others].logsumexp(1)


class Sentiment(ClassifierReward):
    """The probability of `label`, its logit, or its log-odds, reported under `name`.

    Choose a name that rises with what is rewarded: `negative_sentiment` for negative texts.

    A well-known walkthrough of PPO calls its classifier with `prefix="<|endoftext|>"`, no attention
    mask and float16; a float16 probability is rounded as there. RewardError where the classifier
    can't be loaded or has no such label.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "zoo:sentiment",
        label: str = "POSITIVE",
        name: str = "sentiment",
        output: Literal["prob", "logit", "log_odds"] = "prob",
        prefix: str = "",
        **options: Any,
    ) -> None:
        """
        Args:
            label: The label, by the classifier's name for it, in upper or lower case.
            name: The score's name in metrics, tables and figures.
            output: prob | logit | log_odds.
            use_attention_mask: false: padding is read like text, as in a well-known walkthrough.
            prefix: Put before each text; that walkthrough's texts began with <|endoftext|>.
        """
        super().__init__(device, path=path, **options)
        self.main = name
        self.output: Literal["prob", "logit", "log_odds"] = output
        self.prefix = prefix
        names = [known.lower() for known in self.labels]
        if label.lower() not in names:
            raise RewardError(
                f"reward.label={label} is not a label of {path}; it has {', '.join(self.labels)}"
            )
        self.label = names.index(label.lower())

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`: in [0, 1] for probabilities, otherwise unbounded; NaN for an empty text."""
        logits = self.logits(scored_texts(samples, self.judge, self.prefix))
        return {self.main: self._output(logits)}

    def _output(self, logits: Tensor) -> Tensor:
        if self.output == "logit":
            return logits[:, self.label].float()
        odds = log_odds(logits, self.label, independent=self.independent)
        # to the model's precision and back: the walkthrough's softmax in float16 rounds as well
        return odds if self.output == "log_odds" else odds.sigmoid().to(logits.dtype).float()
