"""ImageReward (Xu et al. 2023): a BLIP model trained on human comparisons of images."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, CLIPImageProcessorPil

from rlfactory.reward.backbones.blip import BlipScorer, load_blip_scorer
from rlfactory.reward.backbones.pretrained import Precision, load_published, network_dtype
from rlfactory.reward.base import Reward, RewardError, Samples, require_images
from rlfactory.utils.types import PositiveInt

MEAN, DEVIATION = 0.16717362830052426, 1.0333394966054072
"""Mean and standard deviation of raw scores on the authors' data, as published."""
_MAX_TOKENS = 35


def normalise(raw: Tensor) -> Tensor:
    """Scores on the published scale (mean 0, deviation 1 on the authors' data), from raw ones."""
    return (raw - MEAN) / DEVIATION


class ImageReward(Reward):
    """`imagereward`: ImageReward-v1.0's score of prompt and image, mostly between -2 and 2.

    RewardError where weights or tokenizer can't be loaded.
    """

    media = "images"
    main = "imagereward"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "THUDM/ImageReward/ImageReward.pt",
        tokenizer: str = "google-bert/bert-base-uncased",
        dtype: Precision = "auto",
        batch_size: PositiveInt = 16,
    ) -> None:
        """
        Args:
            path: The weights: a file, or OWNER/NAME/FILE of the hub.
            tokenizer: BERT's, lower case: a folder or a hub id.
            dtype: auto | float32 | float16 | bfloat16; auto: bfloat16 on a GPU.
            batch_size: Images in one forward pass.
        """
        self.device = device
        self.batch_size = batch_size
        precision = network_dtype(dtype, device)
        self.model = load_published(
            path, "ImageReward", lambda weights: load_blip_scorer(weights, precision)
        ).to(device)
        self.tokenizer = _load_tokenizer(tokenizer, self.model)
        size = self.model.vision.config.image_size
        # as published: bicubic resize of the shorter side, centre crop, CLIP's mean and deviation
        self.processor = CLIPImageProcessorPil(size={"shortest_edge": size}, crop_size=size)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, unbounded; NaN where `dtype` overflows."""
        images = require_images(samples)
        raw = torch.empty(len(images))
        for start in range(0, len(images), self.batch_size):
            rows = slice(start, start + self.batch_size)
            raw[rows] = self._raw(images[rows], samples.prompts[rows])
        return {"imagereward": normalise(raw).masked_fill(raw.isinf(), torch.nan)}

    @torch.inference_mode()
    def _raw(self, images: Tensor, prompts: Sequence[str]) -> Tensor:
        pixels = self.processor(list(images.numpy()), return_tensors="pt")["pixel_values"]
        # padded to one length for all batches, as published
        text = self.tokenizer(
            list(prompts),
            padding="max_length",
            truncation=True,
            max_length=_MAX_TOKENS,
            return_tensors="pt",
        ).to(self.device)
        raw: Tensor = self.model(pixels.to(self.device), text["input_ids"], text["attention_mask"])
        return raw.cpu()


def _load_tokenizer(path: str, model: BlipScorer) -> Any:
    """BERT's tokenizer; RewardError where it has more tokens than the model's vocabulary."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise RewardError(
            f"reward.tokenizer={path} could not be loaded as a tokenizer: {error}"
        ) from error
    known = model.text.config.vocab_size
    if not len(tokenizer.all_special_tokens) < len(tokenizer) <= known:
        raise RewardError(
            f"reward.tokenizer={path} has {len(tokenizer)} tokens; the model has {known}"
        )
    return tokenizer
