"""Coherence reward: the log-likelihood of a completion under a language model."""

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM

from rlfactory.reward.backbones.classifier import Precision, ScoredText
from rlfactory.reward.backbones.pretrained import load_with_tokenizer, max_positions
from rlfactory.reward.base import Reward, RewardError, Samples, require_texts
from rlfactory.utils.types import PositiveInt


@dataclass(frozen=True)
class ScoredTokens:
    """The tokens of one sample: at least one of context; those from `first` on are scored."""

    ids: list[int]
    first: int

    @property
    def count(self) -> int:
        """The number of tokens that are scored."""
        return len(self.ids) - self.first


class Coherence(Reward):
    """`coherence`: `log p(completion | prompt)` in nats, mean or sum over its tokens.

    NaN for an empty completion. RewardError where the model can't be loaded or is not causal.
    """

    media = "texts"
    model_options = ("path",)
    main = "coherence"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "zoo:tiny_gpt2",
        judge: ScoredText = "text",
        over_tokens: Literal["mean", "sum"] = "mean",
        dtype: Precision = "float32",
        batch_size: PositiveInt = 16,
        max_tokens: PositiveInt = 512,
    ) -> None:
        """
        Args:
            path: A causal language model: zoo:NAME, a folder or a hub id.
            judge: text (the completion after its prompt) | completion (without its prompt).
            over_tokens: mean | sum.
            dtype: float32 | float16.
            batch_size: Texts in one forward pass.
            max_tokens: >= 2; longer prompts lose their beginning, longer completions their end.
        """
        if max_tokens < 2:
            raise RewardError(
                "reward.max_tokens=1: a token is scored after another; type reward.max_tokens=2"
            )
        self.device = device
        self.judge = judge
        self.over_tokens = over_tokens
        self.batch_size = batch_size
        self.model, self.tokenizer = load_with_tokenizer(
            AutoModelForCausalLM,
            path,
            getattr(torch, dtype),
            what="a causal language model",
            check=lambda model, _: _require_causal(model.to(device)),
        )
        self.max_tokens = min(max_tokens, max_positions(self.model, self.tokenizer))

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, at most 0."""
        rows = self._rows(samples)
        log_likelihood = self.log_likelihood(rows)
        if self.over_tokens == "mean":
            log_likelihood /= torch.tensor([row.count for row in rows])
        return {"coherence": log_likelihood}

    def log_likelihood(self, rows: Sequence[ScoredTokens]) -> Tensor:
        """Sums `[B]` over the scored tokens; NaN without any, or where the precision overflows."""
        sums = torch.full((len(rows),), torch.nan)
        # sorted by length, so that batches have little padding
        order = sorted((i for i, r in enumerate(rows) if r.count), key=lambda i: len(rows[i].ids))
        for start in range(0, len(order), self.batch_size):
            chosen = order[start : start + self.batch_size]
            sums[chosen] = self._batch([rows[i] for i in chosen])
        return sums.masked_fill(sums.isinf(), torch.nan)

    @torch.inference_mode()
    def _batch(self, rows: Sequence[ScoredTokens]) -> Tensor:
        ids = pad_sequence([torch.tensor(row.ids) for row in rows], batch_first=True)
        size = torch.tensor([len(row.ids) for row in rows])
        mask = (torch.arange(ids.shape[1]) < size[:, None]).long()
        logits = self.model(
            input_ids=ids.to(self.device), attention_mask=mask.to(self.device)
        ).logits
        pairs = zip(logits, rows, strict=True)
        return torch.stack([_log_likelihood(row_logits, row) for row_logits, row in pairs]).cpu()

    def _rows(self, samples: Samples) -> list[ScoredTokens]:
        texts = require_texts(samples)
        prompts = samples.prompts if self.judge == "text" else [""] * len(texts)
        prompt_ids = self._encode(prompts)
        full_ids = self._encode([p + text for p, text in zip(prompts, texts, strict=True)])
        return [self._row(*pair) for pair in zip(prompt_ids, full_ids, strict=True)]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        ids = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        return [list(row) for row in ids]

    def _row(self, prompt: list[int], full: list[int]) -> ScoredTokens:
        """The tokens of a sample, from those of its prompt and of prompt and completion together.

        Their common prefix is context, the rest is scored, so a token that spans both belongs to
        the completion. Too long samples lose the beginning of their context, then the end of their
        completion.
        """
        same = len(commonprefix([prompt, full]))
        context, scored = [*self._start(), *full[:same]], full[same:]
        if not context:  # a tokenizer without start and end tokens: the first token has no score
            context, scored = scored[:1], scored[1:]
        scored = scored[: self.max_tokens - 1]
        context = context[-(self.max_tokens - len(scored)) :]
        return ScoredTokens([*context, *scored], len(context))

    def _start(self) -> list[int]:
        """The token that documents begin with: start of text, or else end of text, as in GPT-2."""
        tokenizer = self.tokenizer
        start = tokenizer.bos_token_id
        start = tokenizer.eos_token_id if start is None else start
        return [] if start is None else [start]


def _log_likelihood(logits: Tensor, row: ScoredTokens) -> Tensor:
    """The log-likelihood of a row's scored tokens, from its logits `[T, V]`."""
    end = len(row.ids)
    targets = torch.tensor(row.ids[row.first :], device=logits.device)
    # position t predicts token t + 1; float32, since a sum over a text exceeds half precision
    return -cross_entropy(logits[row.first - 1 : end - 1].float(), targets, reduction="sum")


@torch.inference_mode()
def _require_causal(model: Any) -> None:
    """ValueError where a token's logits depend on the next token: AutoModelForCausalLM loads
    bidirectional encoders (BERT) too.
    """
    ids = torch.tensor([[0, 0], [0, 1]], device=model.device)
    first, second = model(input_ids=ids).logits[:, 0].float()
    if not (first - second).abs().max() <= 1e-3 * first.abs().max():
        raise ValueError("its logits depend on later tokens, so it is not causal")
