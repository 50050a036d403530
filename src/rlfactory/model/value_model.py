"""A critic with a network of its own, as TRL's: a reward model read at every position."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from rlfactory.model.hub import ModelError, explained
from rlfactory.model.language import disable_dropout, fuse_activations
from rlfactory.model.pipeline import no_bars
from rlfactory.zoo.models import resolve


class ValueModel(nn.Module):
    """A causal sequence classifier with one score, all of it trained, dropout off.

    It reads the policy's own token ids. A language model without a score begins with one of 0.
    """

    def __init__(self, path: str, vocabulary: int) -> None:
        super().__init__()
        self.network, missing = _load(path)
        if not isinstance(getattr(self.network, "score", None), nn.Linear):
            raise ModelError(
                f"model.value_path={path} is a {type(self.network).__name__}, which has no score to"
                " read at each token; name a causal reward model"
            )
        if self.network.config.vocab_size < vocabulary:
            raise ModelError(
                f"model.value_path={path} knows {self.network.config.vocab_size} tokens, and the"
                f" policy's tokenizer has {vocabulary}; they must be the same"
            )
        if missing:
            nn.init.zeros_(self.network.score.weight)
        disable_dropout(self.network)
        fuse_activations(self.network)
        self.network.eval().requires_grad_(True)

    def forward(self, ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """Values `[B, L]`, float32, of the states behind each of the tokens `[B, L]`."""
        hidden = self.network.base_model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False
        ).last_hidden_state
        value: Tensor = self.network.score(hidden)
        return value[..., 0].float()


def _load(path: str) -> tuple[PreTrainedModel, set[str]]:
    """The network in float32, and which of its weights the folder lacks: at most the score's."""
    kind = "a model with one score"
    with explained(path, kind, key="model.value_path") as locate, no_bars():
        network, info = AutoModelForSequenceClassification.from_pretrained(
            locate(resolve(path, "config.json")),
            num_labels=1,
            dtype=torch.float32,
            output_loading_info=True,
        )
        missing = _absent(info)
    return network, missing


def _absent(info: dict[str, Any]) -> set[str]:
    absent = {*map(str, info["missing_keys"]), *map(str, info["mismatched_keys"])}
    if others := absent - {"score.weight"}:
        raise ValueError(f"it has no fitting weights for {', '.join(sorted(others)[:4])}")
    return absent
