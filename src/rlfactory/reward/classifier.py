"""A transformers classifier of texts: what the rewards with a network of their own share."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from rlfactory.reward.base import Samples, completions
from rlfactory.reward.pretrained import loading, longest, whole_model, whole_tokenizer
from rlfactory.zoo.models import resolve

Precision = Literal["float32", "float16"]
Judged = Literal["text", "completion"]


def judged_texts(samples: Samples, judge: Judged, prefix: str) -> list[str]:
    """What is read of each sample: the completion alone, or the prompt and the completion."""
    prompts = samples.prompts if judge == "text" else [""] * len(samples.prompts)
    pairs = zip(prompts, completions(samples), strict=True)
    return [prefix + prompt + completion for prompt, completion in pairs]


class Classifier:
    """Logits of texts, from any `AutoModelForSequenceClassification` and its tokenizer.

    `path` is `zoo:NAME`, a folder or a hub id; RewardError where it holds no whole classifier.
    """

    def __init__(
        self,
        path: str,
        device: torch.device,
        *,
        dtype: Precision,
        use_attention_mask: bool,
        batch_size: int,
        max_tokens: int,
    ) -> None:
        self.device = device
        self.use_attention_mask = use_attention_mask
        self.batch_size = batch_size
        self.model, self.tokenizer = _load(path, getattr(torch, dtype))
        self.model.to(device).eval()
        self.max_tokens = min(max_tokens, longest(self.model, self.tokenizer))
        self._reads_nothing = bool(self.tokenizer("")["input_ids"])  # by its own first token

    @property
    def labels(self) -> list[str]:
        """The names of the logits, in order."""
        names = self.model.config.id2label
        return [str(names[i]) for i in range(self.model.config.num_labels)]

    @property
    def independent(self) -> bool:
        """Whether each logit is a verdict of its own, not one among several that exclude it."""
        several = self.model.config.problem_type == "multi_label_classification"
        return several or len(self.labels) == 1

    @torch.inference_mode()
    def logits(self, texts: Sequence[str]) -> Tensor:
        """Logits `[B, labels]` on the CPU, in the model's precision; NaN where there is none.

        There is none for a text without a token, or where the precision does not suffice.
        """
        found = torch.full((len(texts), len(self.labels)), torch.nan, dtype=self.model.dtype)
        # neighbours in length waste little padding, and characters tell the length well enough
        readable = [i for i, text in enumerate(texts) if text or self._reads_nothing]
        order = sorted(readable, key=lambda i: len(texts[i]))
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            found[rows] = self._batch([texts[i] for i in rows])
        return found.masked_fill(found.isinf(), torch.nan)

    def _batch(self, texts: list[str]) -> Tensor:
        inputs = self.tokenizer(
            texts,
            padding=True,
            padding_side="right",
            truncation=True,
            max_length=self.max_tokens,
            return_tensors="pt",
        ).to(self.device)
        if not self.use_attention_mask:
            inputs.pop("attention_mask", None)
        logits: Tensor = self.model(**inputs).logits
        return logits.cpu()


def _load(path: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """A whole classifier and its tokenizer, which can pad; RewardError where there is none."""
    with loading("reward.path", path, "a classifier of texts") as locate:
        place = locate(resolve(path, "config.json"))
        model = whole_model(AutoModelForSequenceClassification, place, dtype)
        tokenizer = whole_tokenizer(place)
        _let_pad(model, tokenizer)
    return model, tokenizer


def _let_pad(model: Any, tokenizer: Any) -> None:
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ValueError("its tokenizer has no token to pad with")
        tokenizer.pad_token = tokenizer.eos_token
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
