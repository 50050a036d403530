"""A sequence classifier of transformers, as rewards use it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rlfactory.reward.base import RewardError
from rlfactory.zoo.models import zoo_path

_ZOO_PREFIX = "zoo:"


class Classifier:
    """Logits of texts, in batches of like length; padded on the right, with the mask unless told.

    `dtype` is the network's; logits come back in float32, on the CPU.
    """

    def __init__(
        self,
        device: torch.device,
        path: str,
        *,
        dtype: torch.dtype,
        batch_size: int,
        max_tokens: int,
        use_attention_mask: bool = True,
    ) -> None:
        try:
            place = _resolve(path)
            self.tokenizer = AutoTokenizer.from_pretrained(place, padding_side="right")
            network = AutoModelForSequenceClassification.from_pretrained(place, dtype=dtype)
        except (OSError, ValueError, SafetensorError) as error:
            message = f"reward.path={path} could not be loaded as a classifier: {error}"
            raise RewardError(message) from error
        self.network: Any = network.to(device).requires_grad_(False).eval()
        self.device = device
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.use_attention_mask = use_attention_mask

    @property
    def labels(self) -> list[str]:
        """The names of the classes, in the order of the logits."""
        names: dict[int, str] = self.network.config.id2label
        return [names[i] for i in sorted(names)]

    @torch.inference_mode()
    def logits(self, texts: Sequence[str]) -> Tensor:
        """`[N, labels]`."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found = torch.empty(len(texts), len(self.labels))
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            found[rows] = self._batch([texts[i] for i in rows])
        return found

    def _batch(self, texts: list[str]) -> Tensor:
        encoded = self.tokenizer(
            texts,
            return_tensors="pt",
            padding=True,
            truncation=True,
            max_length=self.max_tokens,
        ).to(self.device)
        mask = encoded.attention_mask
        if not self.use_attention_mask:
            mask = torch.ones_like(mask)
        logits: Tensor = self.network(input_ids=encoded.input_ids, attention_mask=mask).logits
        return logits.float().cpu()


def _resolve(path: str) -> str:
    if path.startswith(_ZOO_PREFIX):
        return str(zoo_path(path.removeprefix(_ZOO_PREFIX)))
    folder = Path(path).expanduser()
    if path.startswith(("~", ".", "/")) and not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    return str(folder) if folder.is_dir() else path
