"""Adapter for Stable Diffusion XL, at any resolution."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.sd import SD


class SDXL(SD):
    """A `StableDiffusionXLPipeline`; its UNet is trained, the rest frozen.

    The network is told the image's size: as the original and as the target size, with no crop, as
    the pipeline does by default. An empty negative prompt has embeddings of zeros where the
    pipeline's `force_zeros_for_empty_prompt` says so.
    """

    pipeline = "StableDiffusionXLPipeline"
    encoded = ("sequence", "", "pooled")
    load_options: ClassVar[Mapping[str, Any]] = {"add_watermarker": False}

    def _encode_negative(self, prompt: str) -> TextEmbeddings:
        rows = super()._encode_negative(prompt)
        if prompt or not self.pipe.config.force_zeros_for_empty_prompt:
            return rows
        return {name: torch.zeros_like(tensor) for name, tensor in rows.items()}

    def _added_conditions(self, x: Tensor, text: TextEmbeddings) -> dict[str, Tensor]:
        """The pooled text and the sizes, `[B, 6]`: original, crop, target."""
        height, width = (self.pipe.vae_scale_factor * edge for edge in x.shape[-2:])
        sizes = x.new_zeros(len(x), 6)
        sizes[:, 0::4], sizes[:, 1::4] = height, width
        return {"text_embeds": text["pooled"], "time_ids": sizes}
