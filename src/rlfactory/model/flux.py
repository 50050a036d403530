"""Adapter for FLUX.1, dev and schnell, at any resolution."""

from typing import Any, ClassVar

from torch import Tensor

from rlfactory.model.flow_model import FlowModel
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.precision import exact_inputs
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import NonNegative, PositiveInt


class Flux(FlowModel):
    """A `FluxPipeline`; its transformer is trained, the rest frozen.

    Latents are `[B, 16, h, w]`; only for the transformer they are packed, each 2 x 2 patch into a
    token of 64 numbers. `embedded_guidance` is an input of the network (dev was distilled from a
    guided model), so it costs no second evaluation; schnell has no such input. `guidance` above 1
    is classifier-free guidance by a second evaluation, with the negative prompt.
    """

    pipeline = "FluxPipeline"
    packed = True
    encoded: ClassVar[tuple[str, ...]] = ("sequence", "pooled")

    def __init__(
        self,
        *given: Any,
        text_tokens: PositiveInt = 512,
        embedded_guidance: NonNegative | None = 3.5,
        **options: Any,
    ) -> None:
        """
        Args:
            embedded_guidance: Guidance as an input of the network; null: it has no such input
                (schnell).
            negative_prompt: The prompt that classifier-free guidance steers away from.
        """
        self.embedded_guidance = embedded_guidance
        super().__init__(*given, text_tokens=text_tokens, **options)

    def check_options(self) -> None:
        """Embedded guidance is given exactly where the network takes it."""
        guidance, has_input = self.embedded_guidance, self.network.config.guidance_embeds
        if has_input != (guidance is not None):
            shown = "null" if guidance is None else f"{guidance:g}"
            allowed = "a number, 3.5 as published" if has_input else "null: this network takes none"
            raise ModelError(f"model.embedded_guidance={shown}; allowed is {allowed}")

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        h, w = x.shape[-2:]
        tokens, positions = self._tokens(x, text)
        times = self._times(t) / 1000  # the transformer multiplies by 1000 itself
        guidance = self._guidance(t)
        exact = [1000 * value for value in (times, guidance) if value is not None]
        with exact_inputs(self.network.time_text_embed, *exact):
            velocity = self.network(
                hidden_states=tokens,
                timestep=times,
                encoder_hidden_states=text["sequence"],
                txt_ids=x.new_zeros(text["sequence"].shape[1], 3),
                img_ids=positions,
                return_dict=False,
                **self._own_inputs(guidance, text),
            )[0][:, : h * w // 4]
        scale = self.pipe.vae_scale_factor
        return self.pipe._unpack_latents(velocity, h * scale, w * scale, scale)

    def _own_inputs(self, guidance: Tensor | None, text: TextEmbeddings) -> dict[str, Any]:
        """Inputs of the network that Chroma's has not."""
        return {"guidance": guidance, "pooled_projections": text["pooled"]}

    def _tokens(self, x: Tensor, text: TextEmbeddings) -> tuple[Tensor, Tensor]:
        """Inputs of the network beside the text: tokens `[B, N, 64]`, those of the latents `x`
        first, and their positions `[N, 3]`.
        """
        h, w = x.shape[-2:]
        return self._packed(x), self._image_ids(h // 2, w // 2, x)

    def _packed(self, x: Tensor) -> Tensor:
        return self.pipe._pack_latents(x, *x.shape)

    def _image_ids(self, rows: int, columns: int, x: Tensor) -> Tensor:
        """The positions of image tokens, `[rows * columns, 3]`; copied to the device once."""
        place = (x.device, x.dtype)
        # the pipeline makes them on the CPU, without regard to the batch size
        return self.kept(
            (rows, columns, *place),
            lambda: self.pipe._prepare_latent_image_ids(1, rows, columns, *place),
        )

    def pipeline_arguments(self) -> dict[str, object]:
        """`guidance_scale` is the embedded guidance here, `true_cfg_scale` the other."""
        arguments: dict[str, object] = {"max_sequence_length": self.text_tokens}
        if self.guidance > 1:
            arguments |= {"true_cfg_scale": self.guidance, "negative_prompt": self.negative_prompt}
        if self.embedded_guidance is not None:
            arguments["guidance_scale"] = self.embedded_guidance
        return arguments
