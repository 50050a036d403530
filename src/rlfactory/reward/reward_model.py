"""Reward model: the logit of a sequence classifier with one label, trained on preferences."""

from typing import Any

import torch
from torch import Tensor

from rlfactory.model.lm.score_format import ScoreFormat
from rlfactory.prompts.ops.chat import ChatText
from rlfactory.reward.backbones.classifier import ClassifierReward, scored_texts
from rlfactory.reward.base import RewardError, Samples, require_texts


class RewardModel(ClassifierReward):
    """`reward_model`: the only logit of a sequence classifier, as preference training leaves it.

    A conversation is scored as the classifier's own chat template writes it, if it has one.
    RewardError where the classifier can't be loaded, has several labels, or should
    read an end of text and is not causal.
    """

    main = "reward_model"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str,
        prefix: str | None = None,
        with_end: bool | None = None,
        **options: Any,
    ) -> None:
        """
        Args:
            path: A sequence classifier with one label: zoo:NAME, a folder or a hub id.
            prefix: Put before each text; null: what it was trained with, by its config.json, or
                nothing.
            with_end: true | false: whether the score is read after the end of text that a
                completion ended with; null: as trained.
        """
        super().__init__(device, path=path, **options)
        labels = self.labels
        if len(labels) != 1:
            raise RewardError(
                f"reward.path={path} has {len(labels)} labels ({', '.join(labels)}), and a reward"
                " model has one; for the probability of a label type reward=sentiment"
            )

        trained = ScoreFormat.of(self.model.config)
        self.prefix = trained.prefix if prefix is None else prefix
        self.with_end = trained.with_end if with_end is None else with_end
        self.mean = trained.mean
        if self.with_end:
            self.read_at_end()

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, unbounded; NaN for an empty text."""
        texts = scored_texts(samples, self.judge, self.prefix)
        if self.with_end:
            ended = [True] * len(texts) if samples.ended is None else samples.ended.tolist()
            end = self.tokenizer.eos_token
            texts = [text + end * has_end for text, has_end in zip(texts, ended, strict=True)]
        if self.judge == "text" and self.tokenizer.chat_template is not None:
            pairs = zip(samples.prompts, require_texts(samples), texts, strict=True)
            texts = [self._written(prompt, reply) or text for prompt, reply, text in pairs]
        return {"reward_model": self.logits(texts)[:, 0].float() - self.mean}

    def _written(self, prompt: str, completion: str) -> str | None:
        """A conversation as its own chat template writes it; None for other prompts."""
        if not isinstance(prompt, ChatText):
            return None
        tokenizer = self.tokenizer
        messages = [*prompt.messages, {"role": "assistant", "content": completion}]
        text: str = tokenizer.apply_chat_template(messages, tokenize=False)
        # the tokenizer puts its first token before each text itself
        return text.removeprefix(tokenizer.bos_token or "")
