"""Adapter for FLUX.1 Kontext, which edits a picture by an instruction."""

from math import prod

import torch
from PIL import Image
from torch import Tensor

from rlfactory.model.flux import Flux
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.prompts.ops.pictured import PicturedText


class FluxKontext(Flux):
    """A `FluxKontextPipeline`; its transformer is trained, the rest frozen.

    Each prompt has a picture. It is resized to `size` by the pipeline's own processor and encoded
    once by its autoencoder; its latents are further tokens of the network, beside the noisy ones,
    in both passes of classifier-free guidance.
    """

    pipeline = "FluxKontextPipeline"
    pictures = True

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        text = super()._encode([str(prompt) for prompt in prompts])
        pictures = [prompt.open() for prompt in prompts if isinstance(prompt, PicturedText)]
        if not pictures:  # the negative prompt
            return text
        return {**text, "picture": torch.cat([self._picture_latents(one) for one in pictures])}

    def _picture_latents(self, picture: Image.Image) -> Tensor:
        """Latents of rollouts' resolution, `[1, C, h, w]`, scaled as by the pipeline."""
        processor, vae = self.pipe.image_processor, self.pipe.vae
        pixels = processor.preprocess(processor.resize(picture, *self.edges), *self.edges)
        with self.memory.decoding(vae, self.device):
            return self._latents_of(pixels.to(self.device)).contiguous()

    def _tokens(self, x: Tensor, text: TextEmbeddings) -> tuple[Tensor, Tensor]:
        tokens, positions = super()._tokens(x, text)
        picture = text["picture"].to(x.dtype)
        rows, columns = (edge // 2 for edge in picture.shape[-2:])
        own = self.kept(
            ("picture", rows, columns, x.device, x.dtype),
            # a picture's positions are told from the sample's by the first coordinate
            lambda: self._image_ids(rows, columns, x) + torch.tensor([1, 0, 0], device=x.device),
        )
        return torch.cat([tokens, self._packed(picture)], 1), torch.cat([positions, own])

    def pipeline_arguments(self) -> dict[str, object]:
        """Also those by which pictures and samples keep their size."""
        return super().pipeline_arguments() | {"max_area": prod(self.edges), "_auto_resize": False}
