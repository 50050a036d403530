"""Adapter for Krea 2, Raw and Turbo, at any resolution."""

import math
from dataclasses import replace

from torch import Tensor

from rlfactory.model.base import Resolution
from rlfactory.model.flow_model import FlowModel
from rlfactory.model.lora import SINGLE_PROJECTIONS
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.pipelines.latents import Normalised
from rlfactory.utils.types import Size

DISTILLED_SHIFT = math.exp(1.15)
"""Of the distilled model, whatever the size (`Krea2Pipeline`)."""


class Krea2(FlowModel):
    """A `Krea2Pipeline`; its transformer is trained, the rest frozen.

    Latents are `[B, 16, h, w]`; only for the transformer they are packed, each 2 x 2 patch into a
    token. A token of text has the states of twelve of the encoder's layers. Prompts are padded to
    `text_tokens`, with a mask. `guidance` is 1 more than the pipeline's `guidance_scale`.
    """

    pipeline = "Krea2Pipeline"
    packed = True
    encoded = ("sequence", "mask")
    latents = Normalised()
    adapted = SINGLE_PROJECTIONS

    def resolution_of(self, size: Size) -> Resolution:
        """The dynamic shift of the distilled model is the same for all."""
        found = super().resolution_of(size)
        is_one = found.dynamic and self.pipe.config.is_distilled
        return replace(found, shift=DISTILLED_SHIFT) if is_one else found

    def _tokens_read(self) -> int:
        ends = self.pipe.prompt_template_encode_num_suffix_tokens
        return int(self.text_tokens + self.pipe.prompt_template_encode_start_idx - ends)

    def _written(self, prompt: str) -> str:
        return str(self.pipe.prompt_template_encode_prefix) + prompt

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        batch, channels, h, w = x.shape
        sequence, scale = text["sequence"], int(self.pipe.vae_scale_factor)
        velocity = self.network(
            hidden_states=self.pipe._pack_latents(x, batch, channels, h, w),
            encoder_hidden_states=sequence,
            timestep=self._times(t) / 1000,  # the transformer multiplies by 1000 itself
            position_ids=self.kept(
                (h, w, sequence.shape[1], x.device),
                lambda: self.pipe.prepare_position_ids(sequence.shape[1], h // 2, w // 2, x.device),
            ),
            encoder_attention_mask=text["mask"],
            return_dict=False,
        )[0]
        unpacked: Tensor = self.pipe._unpack_latents(velocity, h * scale, w * scale)
        return unpacked[:, :, 0]

    def pipeline_arguments(self) -> dict[str, object]:
        """The pipeline's scale counts from 0, and it has its own default."""
        return super().pipeline_arguments() | {"guidance_scale": max(self.guidance - 1, 0.0)}
