"""How likely does a language model find a completion? A judge of plain, connected language."""

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM

from rlfactory.reward.base import Reward, RewardError, Samples, completions
from rlfactory.reward.classifier import Judged, Precision
from rlfactory.reward.pretrained import loading, longest, whole_model, whole_tokenizer
from rlfactory.types import PositiveInt
from rlfactory.zoo.models import resolve


@dataclass(frozen=True)
class Row:
    """Tokens, of which those from `first` on are judged; there is at least one before them."""

    ids: list[int]
    first: int

    @property
    def count(self) -> int:
        """The tokens that are judged."""
        return len(self.ids) - self.first


class Coherence(Reward):
    """`coherence`: `log p(completion | prompt)` in nats, by the token or in all.

    `path` is a causal language model; with `judge="completion"` it does not see the prompt. NaN
    for an empty completion.
    """

    media = "texts"
    metadata = ()
    main = "coherence"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "zoo:tiny_gpt2",
        judge: Judged = "text",
        over_tokens: Literal["mean", "sum"] = "mean",
        dtype: Precision = "float32",
        batch_size: PositiveInt = 16,
        max_tokens: PositiveInt = 512,
    ) -> None:
        if max_tokens < 2:
            raise RewardError(
                "reward.max_tokens=1: a token is judged after another; type 2 or more"
            )
        self.device = device
        self.judge = judge
        self.over_tokens = over_tokens
        self.batch_size = batch_size
        self.model, self.tokenizer = _load(path, device, getattr(torch, dtype))
        self.max_tokens = min(max_tokens, longest(self.model, self.tokenizer))

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, at most 0."""
        rows = self._rows(samples)
        found = self.log_likelihood(rows)
        if self.over_tokens == "mean":
            found /= torch.tensor([row.count for row in rows])
        return {"coherence": found}

    def log_likelihood(self, rows: Sequence[Row]) -> Tensor:
        """Sums `[B]` over the judged tokens; NaN where none is, or the precision overflows."""
        found = torch.full((len(rows),), torch.nan)
        # neighbours in length waste little padding
        order = sorted((i for i, r in enumerate(rows) if r.count), key=lambda i: len(rows[i].ids))
        for start in range(0, len(order), self.batch_size):
            chosen = order[start : start + self.batch_size]
            found[chosen] = self._batch([rows[i] for i in chosen])
        return found.masked_fill(found.isinf(), torch.nan)

    @torch.inference_mode()
    def _batch(self, rows: Sequence[Row]) -> Tensor:
        ids = pad_sequence([torch.tensor(row.ids) for row in rows], batch_first=True)
        size = torch.tensor([len(row.ids) for row in rows])
        mask = (torch.arange(ids.shape[1]) < size[:, None]).long()
        logits = self.model(
            input_ids=ids.to(self.device), attention_mask=mask.to(self.device)
        ).logits
        return torch.stack([_sum(at, row) for at, row in zip(logits, rows, strict=True)]).cpu()

    def _rows(self, samples: Samples) -> list[Row]:
        texts = completions(samples)
        prompts = samples.prompts if self.judge == "text" else [""] * len(texts)
        before = self._encode(prompts)
        whole = self._encode([p + text for p, text in zip(prompts, texts, strict=True)])
        return [self._row(a, b) for a, b in zip(before, whole, strict=True)]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        ids = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        return [list(row) for row in ids]

    def _row(self, before: list[int], whole: list[int]) -> Row:
        """What the prompt's tokens and those of both have in common is context, the rest judged.

        So a token on the border is the completion's. What is too long loses the beginning of its
        context, then the end of its completion.
        """
        same = len(commonprefix([before, whole]))
        context, judged = [*self._begin(), *whole[:same]], whole[same:]
        if not context:  # a tokenizer without a token to begin with
            context, judged = judged[:1], judged[1:]
        judged = judged[: self.max_tokens - 1]
        context = context[-(self.max_tokens - len(judged)) :]
        return Row([*context, *judged], len(context))

    def _begin(self) -> list[int]:
        """What documents begin with: the beginning of a text, or else the end of the last one."""
        tokenizer = self.tokenizer
        begin = tokenizer.bos_token_id
        begin = tokenizer.eos_token_id if begin is None else begin
        return [] if begin is None else [begin]


def _sum(logits: Tensor, row: Row) -> Tensor:
    """The log-likelihood of a row's judged tokens, from its logits `[T, V]`."""
    end = len(row.ids)
    wanted = torch.tensor(row.ids[row.first :], device=logits.device)
    return -cross_entropy(logits[row.first - 1 : end - 1].float(), wanted, reduction="sum")


def _load(path: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, Any]:
    """A causal language model and its tokenizer; RewardError where there is none."""
    with loading("reward.path", path, "a causal language model") as locate:
        place = locate(resolve(path, "config.json"))
        model = whole_model(AutoModelForCausalLM, place, dtype).to(device)
        tokenizer = whole_tokenizer(place)
        if not _looks_back(model, device):
            raise ValueError("what it says of a token depends on the next, so it is not causal")
    return model, tokenizer


@torch.inference_mode()
def _looks_back(model: Any, device: torch.device) -> bool:
    """Whether logits do not change with what comes after: transformers loads a BERT here too."""
    ids = torch.tensor([[0, 0], [0, 1]], device=device)
    one, other = model(input_ids=ids).logits[:, 0].float()
    return bool((one - other).abs().max() <= 1e-3 * one.abs().max())
