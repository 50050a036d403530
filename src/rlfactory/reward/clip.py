"""Pictures and prompts as CLIP embeds them: what the rewards that compare the two share."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize
from transformers import CLIPImageProcessorPil, CLIPModel

from rlfactory.pillow import all_to_pil
from rlfactory.reward.pretrained import loading, whole_model, whole_tokenizer
from rlfactory.zoo.models import resolve

log = logging.getLogger(__name__)

Precision = Literal["float32", "float16", "bfloat16"]
Resample = Literal["bicubic", "bilinear"]
Pixels = Callable[[Tensor], Tensor]
"""From pictures `[B, 3, H, W]` uint8 to what the network reads, `[B, 3, side, side]` float32."""


class Clip:
    """Embeddings of unit length `[B, D]`, float32 on the CPU, by a frozen `CLIPModel`.

    Without a tokenizer it reads no prompts, and its text tower is let go.
    """

    def __init__(
        self,
        model: Any,
        device: torch.device,
        *,
        pixels: Pixels,
        tokenizer: Any | None,
        dtype: Precision,
        batch_size: int,
    ) -> None:
        self.pixels, self.tokenizer, self.batch_size = pixels, tokenizer, batch_size
        self.device, self.dtype = device, getattr(torch, dtype)
        # before half precision rounds it: 100 would be off by a thousandth
        self.logit_scale = float(model.logit_scale.detach().float().exp())
        self.width: int = model.config.projection_dim
        self.longest: int = model.config.text_config.max_position_embeddings
        if tokenizer is None:
            del model.text_model, model.text_projection
        self.model = model.requires_grad_(False).to(device, self.dtype).eval()

    def embed_images(self, images: Tensor) -> Tensor:
        """Of pictures `[B, 3, H, W]` uint8; NaN where the precision does not suffice."""
        return self._embed(images, self._image_batch)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Of prompts, equal ones computed once, what exceeds 77 tokens cut at the end."""
        distinct = list(dict.fromkeys(texts))
        found = self._embed(distinct, self._text_batch)
        place = {text: i for i, text in enumerate(distinct)}
        return found[[place[text] for text in texts]]

    def cosines(self, images: Tensor, texts: Sequence[str]) -> Tensor:
        """The cosine `[B]` of each picture with its own prompt."""
        found = (self.embed_images(images) * self.embed_texts(texts)).sum(1)
        if found.isnan().any():
            log.error("%d pictures exceed what %s can hold", int(found.isnan().sum()), self.dtype)
        return found

    @torch.inference_mode()
    def _embed(self, items: Any, batch: Callable[[Any], Tensor]) -> Tensor:
        found = torch.empty(len(items), self.width)
        for start in range(0, len(items), self.batch_size):
            rows = slice(start, start + self.batch_size)
            found[rows] = normalize(batch(items[rows]).float(), dim=1).cpu()
        return found

    def _image_batch(self, images: Tensor) -> Tensor:
        pixels = self.pixels(images).to(self.device, self.dtype)
        embedded: Tensor = self.model.visual_projection(
            self.model.vision_model(pixel_values=pixels).pooler_output
        )
        return embedded

    def _text_batch(self, texts: list[str]) -> Tensor:
        if self.tokenizer is None:
            raise TypeError("this CLIP was loaded for pictures alone")
        tokens = self.tokenizer(
            texts, padding=True, truncation=True, max_length=self.longest, return_tensors="pt"
        ).to(self.device)
        hidden = self.model.text_model(tokens["input_ids"], tokens["attention_mask"])
        embedded: Tensor = self.model.text_projection(hidden.pooler_output)
        return embedded


def load_clip(
    path: str,
    device: torch.device,
    *,
    dtype: Precision,
    batch_size: int,
    processor: str | None = None,
    reads_prompts: bool = True,
    resample: Resample = "bicubic",
) -> Clip:
    """A CLIP of transformers from a folder or a hub id; RewardError where there is no whole one.

    `processor` is where its preprocessing and its tokenizer come from, if not from `path`.
    """
    with loading("reward.path", path, "a CLIP") as locate:
        place = locate(resolve(path, "config.json"))
        model = whole_model(CLIPModel, place, torch.float32)
    with _source(path, processor, "preprocessing") as (locate, source):
        place = locate(resolve(source, "preprocessor_config.json"))
        pixels = published_pixels(CLIPImageProcessorPil.from_pretrained(place), resample)
    tokenizer = load_tokenizer(path, processor) if reads_prompts else None
    return Clip(
        model, device, pixels=pixels, tokenizer=tokenizer, dtype=dtype, batch_size=batch_size
    )


def load_tokenizer(path: str | None, processor: str | None) -> Any:
    """CLIP's tokenizer from `reward.processor`, otherwise from `reward.path`."""
    with _source(path, processor, "tokenizer") as (locate, source):
        return whole_tokenizer(locate(resolve(source, "tokenizer_config.json")))


def published_pixels(processor: Any, resample: Resample = "bicubic") -> Pixels:
    """CLIP's preprocessing: the shorter side resized, the centre cropped, mean and deviation."""
    method = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}[resample]

    def pixels(images: Tensor) -> Tensor:
        found = processor(all_to_pil(images), resample=method, return_tensors="pt")
        ready: Tensor = found["pixel_values"].float()
        return ready

    return pixels


@contextmanager
def _source(
    path: str | None, processor: str | None, what: str
) -> Iterator[tuple[Callable[[str], str], str]]:
    key, source = ("reward.path", path) if processor is None else ("reward.processor", processor)
    assert source is not None
    with loading(key, source, f"a CLIP's {what}") as locate:
        yield locate, source
