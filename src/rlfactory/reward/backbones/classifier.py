"""Text classifiers of transformers, for `sentiment` and `reward_model`."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from rlfactory.model.lm.critic import end_scores, has_state_scores
from rlfactory.prompts.ops.chat import before_answer
from rlfactory.reward.backbones.pretrained import load_with_tokenizer, max_positions
from rlfactory.reward.base import Reward, RewardError, Samples, require_texts
from rlfactory.utils.types import PositiveInt

Precision = Literal["float32", "float16"]
ScoredText = Literal["text", "completion"]


def scored_texts(samples: Samples, judge: ScoredText, prefix: str) -> list[str]:
    """The text of each sample that is scored: with its prompt, or the completion alone.

    A conversation is a transcript, with the completion as the assistant's message.
    """
    prompts = samples.prompts if judge == "text" else [""] * len(samples.prompts)
    pairs = zip(prompts, require_texts(samples), strict=True)
    return [prefix + before_answer(prompt) + completion for prompt, completion in pairs]


class ClassifierReward(Reward):
    """A reward that is made of a classifier's logits: an `AutoModelForSequenceClassification`.

    RewardError where `path` holds no complete classifier.

    Args:
        path: A classifier of texts: zoo:NAME, a folder or a hub id.
        judge: text (prompt and completion) | completion.
        use_attention_mask: false: padding is read like text.
        dtype: float32 | float16.
        batch_size: Texts in one forward pass.
        max_tokens: Longer texts are truncated at the end.
    """

    media = "texts"
    model_options = ("path",)

    def __init__(
        self,
        device: torch.device,
        *,
        path: str,
        judge: ScoredText = "text",
        use_attention_mask: bool = True,
        dtype: Precision = "float32",
        batch_size: PositiveInt = 64,
        max_tokens: PositiveInt = 512,
    ) -> None:
        self.device, self.judge, self.batch_size = device, judge, batch_size
        self.use_attention_mask = use_attention_mask
        self.model, self.tokenizer = load_with_tokenizer(
            AutoModelForSequenceClassification,
            path,
            getattr(torch, dtype),
            what="a classifier of texts",
            check=_set_pad_token,
        )
        self.model.to(device).eval()
        self.max_tokens = min(max_tokens, max_positions(self.model, self.tokenizer))
        # a tokenizer that adds a first token gives even an empty text something to score
        self._scores_empty = bool(self.tokenizer("")["input_ids"])
        self._at_end = False

    def read_at_end(self) -> None:
        """Read scores after the last token, also where that is an end of text.

        RewardError where the network does not score each token, or the tokenizer has no such end.
        """
        fault = "its tokenizer has no end of text" if self.tokenizer.eos_token is None else ""
        if not has_state_scores(self.model):
            fault = f"{type(self.model).__name__} has no score to read after the end of text"
        if fault:
            raise RewardError(f"reward.with_end=true: {fault}; set reward.with_end=false")
        self._at_end = True

    @property
    def labels(self) -> list[str]:
        """The names of the logits, in order."""
        names = self.model.config.id2label
        return [str(names[i]) for i in range(self.model.config.num_labels)]

    @property
    def independent(self) -> bool:
        """Whether each logit is a binary decision (sigmoid), rather than one of several classes."""
        multi_label = self.model.config.problem_type == "multi_label_classification"
        return multi_label or len(self.labels) == 1

    @torch.inference_mode()
    def logits(self, texts: Sequence[str]) -> Tensor:
        """Logits `[B, labels]` on the CPU, in the model's precision.

        NaN for a text without tokens, and where the precision overflows.
        """
        logits = torch.full((len(texts), len(self.labels)), torch.nan, dtype=self.model.dtype)
        # sorted by length, which the characters approximate, so that batches have little padding
        readable = [i for i, text in enumerate(texts) if text or self._scores_empty]
        order = sorted(readable, key=lambda i: len(texts[i]))
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            logits[rows] = self._batch([texts[i] for i in rows])
        return logits.masked_fill(logits.isinf(), torch.nan)

    def _batch(self, texts: list[str]) -> Tensor:
        inputs = self.tokenizer(
            texts,
            padding=True,
            padding_side="right",
            truncation=True,
            max_length=self.max_tokens,
            return_tensors="pt",
        ).to(self.device)
        if self._at_end:
            return end_scores(self.model, inputs.input_ids, inputs.attention_mask).cpu()
        if not self.use_attention_mask:
            inputs.pop("attention_mask", None)
        logits: Tensor = self.model(**inputs).logits
        return logits.cpu()


def _set_pad_token(model: Any, tokenizer: Any) -> None:
    """Pad with the token that the network takes for padding: a causal one reads its score after the
    last other token. Without one, with the tokenizer's own, or the end of text.
    """
    config = model.config.get_text_config()
    if config.pad_token_id in tokenizer.added_tokens_decoder:
        tokenizer.pad_token = str(tokenizer.added_tokens_decoder[config.pad_token_id])
    elif tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ValueError("its tokenizer has no token to pad with")
        tokenizer.pad_token = tokenizer.eos_token
    config.pad_token_id = tokenizer.pad_token_id
