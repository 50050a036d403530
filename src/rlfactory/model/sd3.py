"""Stable Diffusion 3 and 3.5, of any size."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from diffusers import StableDiffusion3Pipeline
from torch import Tensor, nn

from rlfactory.dynamics.process import RectifiedFlow
from rlfactory.model.base import ImageModel
from rlfactory.model.lora import ATTENTION_PROJECTIONS, Lora
from rlfactory.model.pipeline import ModelError, decode_latents, load_pipeline
from rlfactory.model.weights import Weights
from rlfactory.rollout import Condition
from rlfactory.types import NonNegative, Positive, PositiveInt


class SD3(ImageModel):
    """A `StableDiffusion3Pipeline`, its transformer trained and everything else frozen.

    `guidance` above 1 doubles the network evaluations; at 1 (the default) there is none.
    """

    process = "flow"
    forward_process = RectifiedFlow()

    def __init__(
        self,
        device: torch.device,
        seed: int = 0,
        *,
        path: str,
        finetune: Literal["lora", "full"] = "lora",
        lora_rank: PositiveInt = 32,
        lora_alpha: Positive = 64.0,
        lora_targets: list[str] | None = None,
        size: PositiveInt = 512,
        text_tokens: PositiveInt = 256,
        guidance: NonNegative = 1.0,
        negative_prompt: str = "",
    ) -> None:
        self.device = device
        self.pipe = load_pipeline(StableDiffusion3Pipeline, path, torch.float32).to(device)
        self.pipe.set_progress_bar_config(disable=True)
        self.transformer = self.pipe.transformer
        for part in (self.pipe.vae, *self._text_encoders(), self.transformer):
            part.requires_grad_(False).eval()
        self.guidance = guidance
        self.text_tokens = text_tokens
        self.shift = float(self.pipe.scheduler.config.shift)
        edge = self._latent_edge(size)
        self.latent_shape = (self.transformer.config.in_channels, edge, edge)
        self.tokens = (edge // int(self.transformer.config.patch_size)) ** 2
        self._encoded: dict[str, tuple[Tensor, Tensor]] = {}
        self._negative = self.encode([negative_prompt]) if guidance > 1 else None
        self.lora: Lora | None = None
        if finetune == "lora":
            self.lora = Lora(
                self.transformer,
                rank=lora_rank,
                alpha=lora_alpha,
                targets=lora_targets or ATTENTION_PROJECTIONS,
                seed=seed,
            )
            self.weights = Weights(self.lora.parameters(), self.lora.off)
        else:
            self.transformer.requires_grad_(True)
            self.weights = Weights(dict(self.transformer.named_parameters()))

    def _latent_edge(self, size: int) -> int:
        """Latent pixels on a picture's side; an error where the network can't take that many."""
        config = self.transformer.config
        unit = self.pipe.vae_scale_factor * config.patch_size
        largest = unit * config.pos_embed_max_size
        if size % unit or size > largest:
            raise ModelError(f"model.size={size}: {unit}, {2 * unit}, ... {largest} are possible")
        return size // int(self.pipe.vae_scale_factor)

    def _text_encoders(self) -> list[nn.Module]:
        pipe = self.pipe
        encoders = (pipe.text_encoder, pipe.text_encoder_2, pipe.text_encoder_3)
        return [encoder for encoder in encoders if encoder is not None]

    @torch.no_grad()
    def encode(self, prompts: Sequence[str]) -> Condition:
        """Text embeddings `sequence` `[B, L, D]` and `pooled` `[B, P]`."""
        new = sorted(set(prompts) - self._encoded.keys())
        if new:
            sequence, _, pooled, _ = self.pipe.encode_prompt(
                new,
                None,
                None,
                device=self.device,
                do_classifier_free_guidance=False,
                max_sequence_length=self.text_tokens,
            )
            self._encoded |= {p: (sequence[i], pooled[i]) for i, p in enumerate(new)}
        rows = [self._encoded[prompt] for prompt in prompts]
        sequences, pools = zip(*rows, strict=True)
        return Condition({"sequence": torch.stack(sequences), "pooled": torch.stack(pools)})

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        """The velocity, guided where `guidance` exceeds 1."""
        if self._negative is None:
            return self._velocity(x, t, condition.tensors)
        both = {
            name: torch.cat([self._negative.tensors[name].expand_as(rows), rows])
            for name, rows in condition.tensors.items()
        }
        negative, positive = self._velocity(torch.cat([x, x]), torch.cat([t, t]), both).chunk(2)
        return negative + self.guidance * (positive - negative)

    def _velocity(self, x: Tensor, t: Tensor, text: Mapping[str, Tensor]) -> Tensor:
        velocity: Tensor = self.transformer(
            hidden_states=x,
            timestep=1000 * t,
            encoder_hidden_states=text["sequence"],
            pooled_projections=text["pooled"],
            return_dict=False,
        )[0]
        return velocity.float()

    def decode(self, latents: Tensor) -> Tensor:
        """Pictures by the pipeline's own autoencoder."""
        return decode_latents(self.pipe.vae, latents)

    def export(self, folder: Path) -> None:
        """LoRA: one folder that both diffusers and PEFT load. Full: a `transformer` folder."""
        if self.lora is None:
            self.transformer.save_pretrained(folder / "transformer", safe_serialization=True)
            return
        StableDiffusion3Pipeline.save_lora_weights(
            folder,
            transformer_lora_layers=self.lora.state_dict(),
            transformer_lora_adapter_metadata=self.lora.metadata(),
        )
        self.lora.save_for_peft(folder)
