"""Would people like the picture, for this prompt? ImageReward, a BLIP trained on comparisons."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoTokenizer, CLIPImageProcessorPil

from rlfactory.reward.base import Reward, RewardError, Samples, pictures
from rlfactory.reward.blip import Rater, published_rater
from rlfactory.reward.checkpoint import read_weights
from rlfactory.types import PositiveInt

MEAN, DEVIATION = 0.16717362830052426, 1.0333394966054072
"""Of raw scores, as published: what is given back has mean 0 and deviation 1 on their data."""
_MOST_TOKENS = 35


def normalise(raw: Tensor) -> Tensor:
    """Scores of the published scale, from raw ones."""
    return (raw - MEAN) / DEVIATION


class ImageReward(Reward):
    """`imagereward`: ImageReward-v1.0's score of prompt and picture, mostly between -2 and 2.

    `path` is a file of weights, or `OWNER/NAME/FILE` of the hub; `tokenizer` is BERT's, lower case.
    RewardError where either can't be loaded. Source: Xu et al. 2023.
    """

    media = "images"
    metadata = ()
    main = "imagereward"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "THUDM/ImageReward/ImageReward.pt",
        tokenizer: str = "google-bert/bert-base-uncased",
        dtype: Literal["float32", "float16", "bfloat16"] = "float32",
        batch_size: PositiveInt = 16,
    ) -> None:
        self.device = device
        self.batch_size = batch_size
        self.model = _rater(path, getattr(torch, dtype)).to(device)
        self.tokenizer = _tokenizer(tokenizer, self.model)
        size = self.model.vision.config.image_size
        # bicubic to the shorter side, the middle of it, and CLIP's mean and deviation
        self.processor = CLIPImageProcessorPil(size={"shortest_edge": size}, crop_size=size)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` without bounds; NaN where `dtype` could not hold one."""
        images = pictures(samples)
        raw = torch.empty(len(images))
        for start in range(0, len(images), self.batch_size):
            rows = slice(start, start + self.batch_size)
            raw[rows] = self._raw(images[rows], samples.prompts[rows])
        return {"imagereward": normalise(raw).masked_fill(raw.isinf(), torch.nan)}

    @torch.inference_mode()
    def _raw(self, images: Tensor, prompts: Sequence[str]) -> Tensor:
        pixels = self.processor(list(images.numpy()), return_tensors="pt")["pixel_values"]
        # padded to the same length whatever the batch, as published
        text = self.tokenizer(
            list(prompts),
            padding="max_length",
            truncation=True,
            max_length=_MOST_TOKENS,
            return_tensors="pt",
        ).to(self.device)
        raw: Tensor = self.model(pixels.to(self.device), text["input_ids"], text["attention_mask"])
        return raw.cpu()


def _rater(path: str, dtype: torch.dtype) -> Rater:
    weights = read_weights(path, key="reward.path")
    try:
        return published_rater(weights, dtype)
    except (RuntimeError, KeyError, ValueError) as error:
        raise RewardError(
            f"reward.path={path} is no ImageReward: {error}; type reward.path=FILE for one that is"
        ) from error


def _tokenizer(path: str, model: Rater) -> Any:
    """BERT's, with the words that the model knows and no others."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, KeyError) as error:
        raise RewardError(
            f"reward.tokenizer={path} could not be loaded as a tokenizer: {error}"
        ) from error
    known = model.text.config.vocab_size
    if not len(tokenizer.all_special_tokens) < len(tokenizer) <= known:
        raise RewardError(
            f"reward.tokenizer={path} has {len(tokenizer)} tokens, and the model knows {known}"
        )
    return tokenizer
