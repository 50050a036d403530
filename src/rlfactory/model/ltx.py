"""Adapter for LTX-Video, text to video, at any resolution and length."""

from typing import Any

import torch
from torch import Tensor

from rlfactory.model.flow_model import FlowModel
from rlfactory.model.lora import CROSS_ATTENTION_PROJECTIONS
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.pipelines.noise_levels import latent_frames
from rlfactory.utils.types import NonNegative, PositiveInt, Size

DECODING_SEED = 0
"""Of the noise that decoding adds: the same for all samples, so that a video follows from its
latents alone, whatever it is decoded with."""


class LTX(FlowModel):
    """An `LTXPipeline`; its transformer is trained, the rest frozen.

    Latents are `[B, C, t, h, w]`: one for the first frame, and one for each eight further ones;
    each is a token, at a position in seconds and pixels. From 0.9.1 on the autoencoder is told a
    time at which it decodes, and gets latents with noise.
    """

    pipeline = "LTXPipeline"
    media = "videos"
    encoded = ("sequence", "mask")
    patch = 1
    adapted = CROSS_ATTENTION_PROJECTIONS

    def __init__(
        self,
        *given: Any,
        size: Size = 512,
        frames: PositiveInt = 161,
        frame_rate: PositiveInt = 25,
        text_tokens: PositiveInt = 128,
        guidance: NonNegative = 3.0,
        decode_timestep: NonNegative = 0.05,
        decode_noise_scale: NonNegative = 0.025,
        **options: Any,
    ) -> None:
        """
        Args:
            lora_targets: Module names, or all-linear; null: the eight projections of self- and
                cross-attention.
            frames: Frames of a video: 1, 9, 17, ... (full length: 161).
            frame_rate: Frames per second, on which positions in time depend.
            decode_timestep: The time at which the autoencoder decodes, from 0.9.1 on.
            decode_noise_scale: The share of noise in latents that it decodes, from 0.9.1 on.
        """
        self.frames, self.frame_rate = frames, frame_rate
        self.decoding = {
            "decode_timestep": decode_timestep,
            "decode_noise_scale": decode_noise_scale,
        }
        super().__init__(*given, size=size, text_tokens=text_tokens, guidance=guidance, **options)

    @property
    def latent_pixels(self) -> int:
        return int(self.pipe.vae_spatial_compression_ratio)

    @property
    def latent_times(self) -> tuple[int, ...]:
        return (latent_frames(self.frames, int(self.pipe.vae_temporal_compression_ratio)),)

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        times, height, width = x.shape[2:]
        edge, group = self.latent_pixels, self.pipe.vae_temporal_compression_ratio
        velocity: Tensor = self.network(
            hidden_states=self.pipe._pack_latents(x),
            encoder_hidden_states=text["sequence"],
            timestep=self._times(t),
            encoder_attention_mask=text["mask"],
            num_frames=times,
            height=height,
            width=width,
            rope_interpolation_scale=(group / self.frame_rate, edge, edge),
            return_dict=False,
        )[0]
        return self.pipe._unpack_latents(velocity, times, height, width)

    def _decode(self, latents: Tensor) -> Tensor:
        vae = self.pipe.vae
        scaled = self.pipe._denormalize_latents(
            latents, vae.latents_mean, vae.latents_std, vae.config.scaling_factor
        ).to(vae.dtype)
        if vae.config.timestep_conditioning:
            # one by one: diffusers mixes up times of several if it decodes them in slices
            pixels = torch.cat([self._decode_noisy(one) for one in scaled.split(1)])
        else:
            pixels = vae.decode(scaled, return_dict=False)[0]
        return pixels.transpose(1, 2)

    def _decode_noisy(self, latents: Tensor) -> Tensor:
        """Pixels `[1, 3, F, H, W]`; the decoder too draws noise, from the global generator."""
        timestep, share = self.decoding.values()
        devices = [latents.device] if latents.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(DECODING_SEED)
            noisy = (1 - share) * latents + share * torch.randn_like(latents)
            pixels: Tensor = self.pipe.vae.decode(
                noisy, latents.new_tensor([timestep]), return_dict=False
            )[0]
        return pixels

    def _latents_of(self, pixels: Tensor) -> Tensor:
        vae = self.pipe.vae
        latents = vae.encode(pixels.transpose(1, 2).to(vae.dtype)).latent_dist.mode()
        return self.pipe._normalize_latents(
            latents, vae.latents_mean, vae.latents_std, vae.config.scaling_factor
        )

    def pipeline_arguments(self) -> dict[str, object]:
        """Also frames, their rate, and how an autoencoder that asks for it decodes."""
        video = {"num_frames": self.frames, "frame_rate": self.frame_rate}
        decoding = self.decoding if self.pipe.vae.config.timestep_conditioning else {}
        return super().pipeline_arguments() | video | decoding
