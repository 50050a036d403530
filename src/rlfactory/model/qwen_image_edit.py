"""Adapter for Qwen-Image-Edit, which edits a picture by an instruction."""

from collections.abc import Sequence
from math import prod

import torch
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as edit_plus
from PIL import Image
from torch import Tensor

from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.prompt_encoding import NEGATIVE
from rlfactory.model.qwen_image import QwenImage
from rlfactory.prompts.ops.pictured import PicturedText
from rlfactory.utils.types import Size


class QwenImageEdit(QwenImage):
    """A `QwenImageEditPlusPipeline`; its transformer is trained, the rest frozen.

    Each prompt has a picture, which is resized to `size`. The text encoder reads it before the
    prompt, and before the negative prompt too; its latents are further tokens of the network.
    """

    pipeline = "QwenImageEditPlusPipeline"
    pictures = True
    negatives_beside = True

    def embedding_options(self, size: Size) -> dict[str, object]:
        """Also the negative prompt that is read with pictures."""
        negative = self.negative_prompt if self.guidance > 1 else None
        return super().embedding_options(size) | {"negative": negative}

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        # `encode` has checked that each has a picture
        rows = [self._row(prompt) for prompt in prompts if isinstance(prompt, PicturedText)]
        return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}

    def _row(self, prompt: PicturedText) -> TextEmbeddings:
        """The tensors of one prompt, one row each."""
        picture = self.pipe.image_processor.resize(prompt.open(), *self.edges)
        texts = {"": str(prompt)}
        if self.guidance > 1:
            texts[NEGATIVE] = self.negative_prompt
        row: dict[str, Tensor] = {}
        for kind, text in texts.items():
            shown = [self._shown(picture)]
            read = self.pipe.encode_prompt([text], image=shown, device=self.device)
            row |= {kind + name: rows for name, rows in self._padded(*read).items()}
        # which has whole 32 pixels an edge, whatever the sample has
        pixels = self.pipe.image_processor.preprocess(self._shown(picture, prod(self.edges)))
        with self.memory.decoding(self.pipe.vae, self.device):
            latents = self._latents_of(pixels.to(self.device)).contiguous()
        return {**row, "picture": latents}

    def _shown(self, picture: Image.Image, area: int | None = None) -> Image.Image:
        """The picture as the pipeline resizes it to an area; None: that for its text encoder."""
        area, ratio = area or edit_plus.CONDITION_IMAGE_SIZE, picture.width / picture.height
        width, height = edit_plus.calculate_dimensions(area, ratio)
        return self.pipe.image_processor.resize(picture, height, width)

    def _pictures(self, text: TextEmbeddings) -> list[Tensor]:
        return [text["picture"]]

    def _tokens_read(self) -> int:
        """Tokens that are read, of which the picture has some."""
        images = self.pipe.processor.image_processor
        blank = self._shown(Image.new("RGB", self.edges[::-1]))
        patches = images(images=blank, return_tensors="pt")["image_grid_thw"].prod()
        return super()._tokens_read() - int(patches) // int(images.merge_size) ** 2 + 1

    def _written(self, prompt: str) -> str:
        return super()._written(f"Picture 1: <|vision_start|><|image_pad|><|vision_end|>{prompt}")

    def pipeline_settings(self) -> Sequence[str]:
        """The picture keeps its size."""
        size = "picture.width * picture.height"
        return (f"import {edit_plus.__name__} as edit", f"edit.VAE_IMAGE_SIZE = {size}")
