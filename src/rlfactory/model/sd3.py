"""Stable Diffusion 3 and 3.5, of any size."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from diffusers import StableDiffusion3Pipeline
from torch import Tensor

from rlfactory.dynamics.process import RectifiedFlow
from rlfactory.model.base import ImageModel, Resolution
from rlfactory.model.conditioning import guided, network_times
from rlfactory.model.finetune import export, export_whole, set_up, whole
from rlfactory.model.frozen import open_pipeline
from rlfactory.model.lora import ATTENTION_PROJECTIONS
from rlfactory.model.lora_init import Init
from rlfactory.model.memory import Memory
from rlfactory.model.pipeline import ModelError, decode_latents
from rlfactory.model.precision import Precision
from rlfactory.model.prompt_cache import IN_MEMORY, PromptCache, Text
from rlfactory.rollout import Condition
from rlfactory.types import NonNegative, Positive, PositiveInt


class SD3(ImageModel):
    """A `StableDiffusion3Pipeline`, its transformer trained and everything else frozen.

    `guidance` above 1 doubles the network evaluations; at 1 (the default) there is none.
    """

    pipeline = "StableDiffusion3Pipeline"
    process = "flow"
    attention_backends = False
    forward_process = RectifiedFlow()

    def __init__(
        self,
        device: torch.device,
        seed: int = 0,
        precision: Precision | None = None,
        memory: Memory | None = None,
        prompt_cache: PromptCache = IN_MEMORY,
        *,
        path: str,
        finetune: Literal["lora", "full"] = "lora",
        lora_rank: PositiveInt = 32,
        lora_alpha: Positive = 64.0,
        lora_targets: list[str] | None = None,
        lora_init: Init = "gaussian",
        size: PositiveInt = 512,
        text_tokens: PositiveInt = 256,
        guidance: NonNegative = 1.0,
        negative_prompt: str = "",
        timesteps: Literal["exact", "truncated"] = "exact",
    ) -> None:
        self.device = device
        self.precision = precision or Precision()
        self.memory = memory or Memory()
        self.pipe, self.texts = open_pipeline(
            StableDiffusion3Pipeline,
            path,
            device,
            self.precision,
            self.memory,
            prompt_cache,
            self._encode,
            whole=whole("transformer", finetune),
            always=[negative_prompt] if guidance > 1 else [],
            reads={"text_tokens": text_tokens},
        )
        self.transformer = self.pipe.transformer
        self.guidance, self.negative_prompt = guidance, negative_prompt
        self.text_tokens = text_tokens
        self.timesteps = timesteps
        self.resolution = self.resolution_of(size)
        self._negative = self.encode([negative_prompt]).tensors if guidance > 1 else None
        self.weights, self.lora = set_up(
            self.transformer,
            finetune,
            rank=lora_rank,
            alpha=lora_alpha,
            targets=lora_targets or ATTENTION_PROJECTIONS,
            init=lora_init,
            seed=seed,
            memory=self.memory,
        )

    def resolution_of(self, size: int) -> Resolution:
        """Any that the network has positions for."""
        config = self.transformer.config
        unit = self.pipe.vae_scale_factor * config.patch_size
        largest = unit * config.pos_embed_max_size
        if size % unit or size > largest:
            raise ModelError(f"size={size}: {unit}, {2 * unit}, ... {largest} are possible")
        edge = size // int(self.pipe.vae_scale_factor)
        return Resolution(
            shape=(config.in_channels, edge, edge),
            shift=float(self.pipe.scheduler.config.shift),
            tokens=(size // unit) ** 2,
        )

    def encode(self, prompts: Sequence[str]) -> Condition:
        """Text embeddings `sequence` `[B, L, D]` and `pooled` `[B, P]`."""
        return self.texts(prompts)

    def prepare(self, prompts: Sequence[str], batch: int) -> None:
        """Once they are encoded the encoders go; the negative prompt is at hand already."""
        self.texts.prepare(prompts, batch)

    def _encode(self, prompts: list[str]) -> Text:
        with self.memory.encoding(self.pipe, self.device):
            sequence, _, pooled, _ = self.pipe.encode_prompt(
                prompts,
                None,
                None,
                device=self.device,
                do_classifier_free_guidance=False,
                max_sequence_length=self.text_tokens,
            )
        return {"sequence": sequence, "pooled": pooled}

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        """The velocity, guided where `guidance` exceeds 1."""
        text = condition.tensors
        return guided(self._velocity, x, t, text, self._negative, self.guidance)

    def _velocity(self, x: Tensor, t: Tensor, text: Text) -> Tensor:
        self.evaluations.add(len(x))
        with self.precision.autocast(x.device):
            velocity: Tensor = self.transformer(
                hidden_states=x,
                timestep=network_times(t, self.timesteps),
                encoder_hidden_states=text["sequence"],
                pooled_projections=text["pooled"],
                return_dict=False,
            )[0]
        return velocity.float()

    def decode(self, latents: Tensor) -> Tensor:
        """Pictures by the pipeline's own autoencoder."""
        with self.memory.decoding(self.pipe.vae, self.device):
            return decode_latents(self.pipe.vae, latents)

    def export(self, folder: Path) -> None:
        """LoRA: one folder that both diffusers and PEFT load. Full: a `transformer` folder."""
        export(self.pipe, "transformer", self.lora, folder)

    def export_whole(self, folder: Path) -> None:
        """A pipeline folder with all parts."""
        export_whole(self.pipe, "transformer", self.lora, folder)

    def pipeline_arguments(self) -> dict[str, object]:
        """How this prompt and this guidance are asked of the pipeline itself."""
        arguments: dict[str, object] = {
            "guidance_scale": self.guidance,
            "max_sequence_length": self.text_tokens,
        }
        if self.negative_prompt:
            arguments["negative_prompt"] = self.negative_prompt
        return arguments
