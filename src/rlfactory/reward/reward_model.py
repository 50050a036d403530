"""Reward model: the logit of a sequence classifier with one label, trained on preferences."""

from typing import Any

import torch
from torch import Tensor

from rlfactory.model.lm.critic import ScoreFormat
from rlfactory.model.lm.prompt_format import PromptFormat, TextRole
from rlfactory.reward.backbones.classifier import ClassifierReward, scored_texts
from rlfactory.reward.base import RewardError, Samples, require_texts


class RewardModel(ClassifierReward):
    """`reward_model`: the only logit of a sequence classifier, as preference training leaves it.

    Where the classifier has a chat template, prompt and completion are scored as it writes them: a
    conversation, or a text as a user's message. RewardError where the classifier can't be loaded,
    has several labels, or should read an end of text and is not causal.
    """

    main = "reward_model"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str,
        prefix: str | None = None,
        with_end: bool | None = None,
        text_role: TextRole = "auto",
        **options: Any,
    ) -> None:
        """
        Args:
            path: A sequence classifier with one label: zoo:NAME, a folder or a hub id.
            prefix: Put before each text; null: what it was trained with, by its config.json, or
                nothing.
            with_end: true | false: whether the score is read after the end of text that a
                completion ended with; null: as trained.
            text_role: none | user | auto: whether a prompt that is a text is scored as it is or as
                a user's message; auto: as a message where there is a chat template.
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
        self.form = PromptFormat(self.tokenizer, text_role=text_role, begin=self.prefix)
        if self.with_end:
            self.read_at_end()

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, unbounded; NaN for an empty text."""
        texts, plain = require_texts(samples), scored_texts(samples, self.judge, self.prefix)
        ended = [True] * len(texts) if samples.ended is None else samples.ended.tolist()
        rows = zip(samples.prompts, texts, plain, ended, strict=True)
        scored = [self._scored(*row) for row in rows]
        return {"reward_model": self.logits(scored)[:, 0].float() - self.mean}

    def _scored(self, prompt: str, completion: str, plain: str, ended: bool) -> str:
        """The text that is scored of a sample: by the template, or `plain`."""
        has_template = self.judge == "text" and self.form.has_template
        if has_template and self.form.messages(prompt) is not None:
            if not self.with_end:
                return self.form.answered(prompt, completion, "all")
            return self.form.answered(prompt, completion, "end" if ended else "text")
        return plain + (self.tokenizer.eos_token if self.with_end and ended else "")
