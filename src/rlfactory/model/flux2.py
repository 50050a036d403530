"""Adapter for FLUX.2 klein, base and distilled, at any resolution."""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from rlfactory.model.base import Resolution
from rlfactory.model.flow_model import FlowModel
from rlfactory.model.lora import ATTENTION_PROJECTIONS
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.pipelines.latents import Patches
from rlfactory.model.pipelines.text_encoders import user_message
from rlfactory.model.precision import exact_inputs
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import Size


class Flux2Klein(FlowModel):
    """A `Flux2KleinPipeline`; its transformer is trained, the rest frozen.

    Latents are what the network sees, `[B, 128, h, w]`: patches of 2 x 2 latents of the
    autoencoder, normalised by the statistics that it holds. Guidance goes from the empty prompt,
    as in the pipeline.

    Args:
        negative_prompt: Only the empty prompt, as in the pipeline.
    """

    pipeline = "Flux2KleinPipeline"
    latents = Patches()
    patch = 1
    encoded = ("sequence",)
    # single blocks have query, key, value and the MLP's input in one layer
    adapted = [*ATTENTION_PROJECTIONS, "attn.to_qkv_mlp_proj"]
    outside_comfyui = (
        "double_stream_modulation",
        "single_stream_modulation",
        "time_guidance_embed",
    )

    def check_options(self) -> None:
        """Guidance is not for distilled models, and goes from the empty prompt."""
        super().check_options()
        if self.negative_prompt:
            raise ModelError(
                f"model.negative_prompt={self.negative_prompt!r}: this pipeline guides from the"
                " empty prompt alone; type model.negative_prompt=''"
            )

    @property
    def latent_pixels(self) -> int:
        """Those of two of the autoencoder's latents."""
        return 2 * super().latent_pixels

    def resolution_of(self, size: Size) -> Resolution:
        """A dynamic shift depends on the number of steps too."""
        found = super().resolution_of(size)
        if not found.dynamic:
            return found
        _, rows, columns = found.shape
        return replace(found, step_shift=partial(empirical_shift, rows * columns))

    def _written(self, prompt: str) -> str:
        return user_message(self.pipe.tokenizer, prompt, enable_thinking=False)

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        times = self._times(t) / 1000  # the transformer multiplies by 1000 itself
        guidance = self._guidance(t)
        image_ids, text_ids = self._positions(x, text["sequence"])
        exact = [1000 * value for value in (times, guidance) if value is not None]
        with exact_inputs(self.network.time_guidance_embed, *exact):
            velocity: Tensor = self.network(
                hidden_states=x.flatten(2).transpose(1, 2),
                timestep=times,
                guidance=guidance,
                encoder_hidden_states=text["sequence"],
                img_ids=image_ids,
                txt_ids=text_ids,
                return_dict=False,
            )[0]
        return velocity.transpose(1, 2).reshape(x.shape)

    def _positions(self, x: Tensor, sequence: Tensor) -> tuple[Tensor, Tensor]:
        """The positions of image and text tokens, `[n, 4]`; copied to the device once."""

        def make() -> tuple[Tensor, Tensor]:
            image = self.pipe._prepare_latent_ids(torch.empty(1, *x.shape[1:]))[0]
            text = self.pipe._prepare_text_ids(torch.empty(1, *sequence.shape[1:]))[0]
            return image.to(x.device), text.to(x.device)

        return self.kept((*x.shape[-2:], sequence.shape[1], x.device), make)


def empirical_shift(tokens: int, steps: int) -> float:
    """The timestep shift of FLUX.2 for a number of image tokens and of sampling steps.

    `exp(mu)`, mu linear in both, up to 4300 tokens; beyond, in the tokens alone. From the published
    code of FLUX.2.
    """
    of_200 = 0.00016927 * tokens + 0.45666666
    if tokens > 4300:
        return math.exp(of_200)
    of_10 = 8.73809524e-05 * tokens + 1.89833333
    slope = (of_200 - of_10) / 190
    return math.exp(slope * steps + of_200 - 200 * slope)
