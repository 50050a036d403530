"""BERTScore (Zhang et al. 2020): how much of a text's meaning another one has, token by token.

With `x` the unit embeddings of a reference's tokens and `y` those of a candidate's,
recall is the mean over the reference of `max_j x_i . y_j`. No token weighs more than another (no
idf); as in the published code the special ones of the reference do not count, while those of the
candidate can be matched. Embeddings are those after one of an encoder's layers.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoModel

from rlfactory.reward.base import RewardError
from rlfactory.reward.pretrained import loading, whole_model, whole_tokenizer
from rlfactory.zoo.models import resolve


def recall(reference: Tensor, counted: Tensor, candidate: Tensor, real: Tensor) -> Tensor:
    """Recall `[B]` from embeddings `[B, R, D]` and `[B, C, D]`.

    `counted` `[B, R]` are the tokens of the reference that count, `real` `[B, C]` those of the
    candidate that are no padding. NaN where none counts.
    """
    x, y = (torch.nn.functional.normalize(e.float(), dim=-1) for e in (reference, candidate))
    alike = (x @ y.transpose(1, 2)).masked_fill(~real[:, None], -torch.inf)
    best = alike.amax(2).masked_fill(~counted, 0.0)
    return best.sum(1) / counted.sum(1)


class BertScore:
    """Recall by an encoder of transformers, a hub id or a folder, after its layer `layer`."""

    def __init__(
        self,
        path: str,
        device: torch.device,
        *,
        layer: int,
        dtype: Literal["float32", "float16"],
        batch_size: int,
    ) -> None:
        self.device = device
        self.layer = layer
        self.batch_size = batch_size
        self.model, self.tokenizer = _load(path, getattr(torch, dtype))
        self.model.to(device).eval().requires_grad_(False)
        depth = self.model.config.num_hidden_layers
        if layer > depth:
            raise RewardError(f"reward.layer={layer}, and {path} has {depth} layers")
        most = getattr(self.model.config, "max_position_embeddings", 0) or 512
        self.longest = min(self.tokenizer.model_max_length, most)

    @torch.inference_mode()
    def recall(self, candidates: Sequence[str], references: Sequence[str]) -> Tensor:
        """What of each reference its candidate has, `[B]` float32 on the CPU."""
        found = [torch.empty(0)]
        for start in range(0, len(references), self.batch_size):
            rows = slice(start, start + self.batch_size)
            reference, _, counted = self._embed(references[rows])
            candidate, real, _ = self._embed(candidates[rows])
            found.append(recall(reference, counted, candidate, real).cpu())
        return torch.cat(found)

    def _embed(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings `[B, T, D]`, and which tokens are no padding, and no special ones."""
        inputs = self.tokenizer(
            [text.strip() for text in texts],
            padding=True,
            truncation=True,
            max_length=self.longest,
            return_tensors="pt",
            return_special_tokens_mask=True,
        ).to(self.device)
        special = inputs.pop("special_tokens_mask").bool()
        real = inputs["attention_mask"].bool()
        states = self.model(**inputs, output_hidden_states=True).hidden_states
        return states[self.layer], real, real & ~special


def _load(path: str, dtype: torch.dtype) -> tuple[Any, Any]:
    with loading("reward.encoder", path, "an encoder of texts") as locate:
        place = locate(resolve(path, "config.json"))
        # nobody asks it to classify, and published encoders may lack a pooler
        model = whole_model(AutoModel, place, dtype, without="pooler")
        tokenizer = whole_tokenizer(place)
    return model, tokenizer
