"""CLIP embeddings of images and prompts, for the rewards that compare the two."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate, normalize
from transformers import CLIPImageProcessorPil, CLIPModel

from rlfactory.model.pipelines.local_models import resolve
from rlfactory.reward.backbones.pretrained import (
    Precision,
    load_full_model,
    load_full_tokenizer,
    loading,
    network_dtype,
)
from rlfactory.reward.base import Metadata, Reward, Samples, require_images
from rlfactory.utils.images import batch_to_pil

log = logging.getLogger(__name__)

Resample = Literal["bicubic", "bilinear"]
Images = Tensor | Sequence[Image.Image]
"""Images `[B, 3, H, W]` uint8, or of any sizes."""
Preprocess = Callable[[Any], Tensor]
"""From `Images`, or images `[B, 3, H, W]` float in [0, 1] with gradient, to the network's input,
`[B, 3, side, side]` float32."""


class Clip:
    """Embeddings of unit length, `[B, D]` float32 on the CPU, by a frozen `CLIPModel`.

    It is given in float32. Without a `tokenizer` its text encoder is deleted.
    """

    def __init__(
        self,
        model: Any,
        device: torch.device,
        *,
        pixels: Preprocess,
        tokenizer: Any | None,
        dtype: Precision,
        batch_size: int,
    ) -> None:
        self.pixels, self.tokenizer, self.batch_size = pixels, tokenizer, batch_size
        self.device, self.dtype = device, network_dtype(dtype, device)
        # before the cast to half precision, which rounds it by up to a thousandth
        self.logit_scale = float(model.logit_scale.detach().float().exp())
        self.width: int = model.config.projection_dim
        self.max_tokens: int = model.config.text_config.max_position_embeddings
        if tokenizer is None:
            del model.text_model, model.text_projection
        self.model = model.requires_grad_(False).to(device, self.dtype).eval()

    def embed_images(self, images: Images) -> Tensor:
        """Embeddings of images; NaN where the precision overflows."""
        return self._embed(images, self._image_batch)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embeddings of prompts, truncated to 77 tokens; equal ones are computed once."""
        distinct = list(dict.fromkeys(texts))
        embeddings = self._embed(distinct, self._text_batch)
        row = {text: i for i, text in enumerate(distinct)}
        return embeddings[[row[text] for text in texts]]

    def cosines(self, images: Tensor, texts: Sequence[str]) -> Tensor:
        """The cosine `[B]` of each image with its own prompt."""
        cosine = (self.embed_images(images) * self.embed_texts(texts)).sum(1)
        if cosine.isnan().any():
            log.error("%d images overflow %s", int(cosine.isnan().sum()), self.dtype)
        return cosine

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        """Embeddings on the device, with gradient, of images `[B, 3, H, W]` float in [0, 1]."""
        return normalize(self._image_batch(pixels.to(self.device)).float(), dim=1)

    def pixel_cosines(self, pixels: Tensor, texts: Sequence[str]) -> Tensor:
        """`cosines` with gradient, of images `[B, 3, H, W]` float in [0, 1]."""
        # a copy that autograd may keep, which it does not of tensors of inference mode
        embedded = self.embed_texts(texts).clone().to(self.device)
        return (self.embed_pixels(pixels) * embedded).sum(1)

    @torch.inference_mode()
    def _embed(self, items: Any, batch: Callable[[Any], Tensor]) -> Tensor:
        embeddings = torch.empty(len(items), self.width)
        for start in range(0, len(items), self.batch_size):
            rows = slice(start, start + self.batch_size)
            # float32 first: the length of a vector may exceed half precision
            embeddings[rows] = normalize(batch(items[rows]).float(), dim=1).cpu()
        return embeddings

    def _image_batch(self, images: Images) -> Tensor:
        pixels = self.pixels(images).to(self.device, self.dtype)
        return self.model.visual_projection(
            self.model.vision_model(pixel_values=pixels).pooler_output
        )

    def _text_batch(self, texts: list[str]) -> Tensor:
        if self.tokenizer is None:
            raise TypeError("this CLIP was loaded for images alone")
        tokens = self.tokenizer(
            texts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        ).to(self.device)
        hidden = self.model.text_model(tokens["input_ids"], tokens["attention_mask"])
        return self.model.text_projection(hidden.pooler_output)


class ClipReward(Reward):
    """A reward that follows from the cosine of image and prompt by `clip`.

    NaN where `dtype` overflows. RewardError where a part of the CLIP can't be loaded.
    """

    media = "images"
    differentiable = True

    clip: Clip

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`."""
        cosine = self.clip.cosines(require_images(samples), samples.prompts)
        return {self.main: self.scaled(cosine)}

    def score_pixels(self, pixels: Tensor, prompts: Sequence[str], metadata: Metadata) -> Tensor:
        return self.scaled(self.clip.pixel_cosines(pixels, prompts))

    def scaled(self, cosine: Tensor) -> Tensor:
        """The score of cosines `[B]`."""
        return cosine


def load_clip(
    path: str,
    device: torch.device,
    *,
    dtype: Precision,
    batch_size: int,
    processor: str | None = None,
    reads_prompts: bool = True,
    resample: Resample | None = "bicubic",
    key: str = "reward.path",
) -> Clip:
    """A CLIP of transformers in a folder or hub id, which the configuration has under `key`;
    without its text encoder unless it `reads_prompts`. `processor` is one with the preprocessing
    and the tokenizer (None: `path`), `resample` how images are resized (None: as it says).

    RewardError where a part is missing, or it is another model.
    """
    with loading(key, path, "a CLIP") as locate:
        folder = locate(resolve(path, "config.json"))
        model = load_full_model(CLIPModel, folder, torch.float32)
    with _source(path, processor, "preprocessing", key) as (locate, source):
        folder = locate(resolve(source, "preprocessor_config.json"))
        pixels = clip_preprocessing(CLIPImageProcessorPil.from_pretrained(folder), resample)
    tokenizer = load_clip_tokenizer(path, processor, key) if reads_prompts else None
    return Clip(
        model, device, pixels=pixels, tokenizer=tokenizer, dtype=dtype, batch_size=batch_size
    )


def load_clip_tokenizer(path: str | None, processor: str | None, key: str = "reward.path") -> Any:
    """CLIP's tokenizer from `reward.processor`, or else from `path`."""
    with _source(path, processor, "tokenizer", key) as (locate, source):
        return load_full_tokenizer(locate(resolve(source, "tokenizer_config.json")))


def clip_preprocessing(processor: Any, resample: Resample | None = "bicubic") -> Preprocess:
    """CLIP's preprocessing: resize of the shorter side, centre crop, mean and deviation.

    Images in float are resized by torch, with Pillow's filters, and not rounded.
    """
    options = {} if resample is None else {"resample": Image.Resampling[resample.upper()]}

    def pixels(images: Images) -> Tensor:
        if isinstance(images, Tensor) and images.is_floating_point():
            return _smooth_pixels(images, processor, resample)
        pictures = batch_to_pil(images) if isinstance(images, Tensor) else images
        inputs = processor(pictures, return_tensors="pt", **options)
        return inputs["pixel_values"].float()

    return pixels


def _smooth_pixels(images: Tensor, processor: Any, resample: Resample | None) -> Tensor:
    """The preprocessing of `processor` with gradient, of images `[B, 3, H, W]` in [0, 1]."""
    side, shorter = processor.size["shortest_edge"], min(images.shape[2:])
    size = [side * length // shorter for length in images.shape[2:]]
    mode = resample or Image.Resampling(processor.resample).name.lower()
    if size != [*images.shape[2:]]:
        images = interpolate(images, size, mode=mode, align_corners=False, antialias=True)
    if processor.do_center_crop:
        crop = [processor.crop_size[edge] for edge in ("height", "width")]
        top, left = ((length - edge) // 2 for length, edge in zip(size, crop, strict=True))
        images = images[:, :, top : top + crop[0], left : left + crop[1]]
    images = images.clamp(0, 1)
    mean, std = (
        torch.tensor(values, device=images.device).view(3, 1, 1)
        for values in (processor.image_mean, processor.image_std)
    )
    return (images - mean) / std


@contextmanager
def _source(
    path: str | None, processor: str | None, what: str, key: str
) -> Iterator[tuple[Callable[[str], str], str]]:
    key, source = (key, path) if processor is None else ("reward.processor", processor)
    assert source is not None
    with loading(key, source, f"a CLIP's {what}") as locate:
        yield locate, source
