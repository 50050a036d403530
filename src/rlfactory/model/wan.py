"""Adapter for Wan 2.1 and 2.2 with one transformer, text to video, at any resolution and length."""

from typing import Any, Literal

from torch import Tensor

from rlfactory.model.flow_model import FlowModel
from rlfactory.model.lora import CROSS_ATTENTION_PROJECTIONS
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.pipelines.latents import Normalised
from rlfactory.model.pipelines.noise_levels import latent_frames
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import NonNegative, PositiveInt, Size


class Wan(FlowModel):
    """A `WanPipeline`; its transformer is trained, the rest frozen.

    Latents are `[B, C, t, h, w]`: one for the first frame, and one for each four further ones.
    Prompts are padded to `text_tokens` with zeros, which the network reads, as the pipeline's.
    ModelError for a pair of transformers, for high and low noise, and where `frames` do not fit.
    """

    pipeline = "WanPipeline"
    media = "videos"
    encoded = ("sequence",)
    latents = Normalised()
    adapted = CROSS_ATTENTION_PROJECTIONS

    def __init__(
        self,
        *given: Any,
        size: Size = 480,
        frames: PositiveInt = 81,
        text_tokens: PositiveInt = 512,
        guidance: NonNegative = 5.0,
        timesteps: Literal["exact", "truncated"] = "truncated",
        **options: Any,
    ) -> None:
        """
        Args:
            lora_rank: Rank of the adapters (Flow-GRPO: 32).
            lora_targets: Module names, or all-linear; null: the eight projections of self- and
                cross-attention.
            frames: Frames of a video: 1, 5, 9, ... (Flow-GRPO: 33; full length: 81).
        """
        self.frames = frames
        options |= {"text_tokens": text_tokens, "timesteps": timesteps}
        super().__init__(*given, size=size, guidance=guidance, **options)

    def check_options(self) -> None:
        """One transformer."""
        if self.pipe.config.boundary_ratio is not None:
            raise ModelError(
                "model.path holds a Wan model with a transformer for high and one for low noise;"
                f" type model=wan22 model.path={self.path}"
            )

    @property
    def latent_pixels(self) -> int:
        return int(self.pipe.vae_scale_factor_spatial)

    @property
    def latent_channels(self) -> int:
        """Without those of a picture, which the network reads too."""
        return int(self.network.config.out_channels)

    @property
    def latent_times(self) -> tuple[int, ...]:
        return (latent_frames(self.frames, int(self.pipe.vae_scale_factor_temporal)),)

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        times = self._times(t)
        if self.timesteps == "truncated":
            times = times.clamp(max=999)  # UniPC's first noise level is 1e-6 below 1
        # a pipeline with `expand_timesteps` gives every token the same time
        return self.network(timestep=times, return_dict=False, **self._inputs(x, text))[0]

    def _inputs(self, x: Tensor, text: TextEmbeddings) -> dict[str, Tensor]:
        """Inputs of the network beside the time."""
        return {"hidden_states": x, "encoder_hidden_states": text["sequence"]}

    def pipeline_arguments(self) -> dict[str, object]:
        return super().pipeline_arguments() | {"num_frames": self.frames}
