"""Stable Diffusion 1 and 2, of any size."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from diffusers import StableDiffusionPipeline
from torch import Tensor

from rlfactory.dynamics.process import VariancePreserving
from rlfactory.model.base import ImageModel, Resolution
from rlfactory.model.conditioning import guided
from rlfactory.model.finetune import export, export_whole, set_up, whole
from rlfactory.model.frozen import open_pipeline
from rlfactory.model.lora_init import Init
from rlfactory.model.memory import Memory
from rlfactory.model.pipeline import ModelError, decode_latents
from rlfactory.model.precision import Precision
from rlfactory.model.prompt_cache import IN_MEMORY, PromptCache, Text
from rlfactory.rollout import Condition
from rlfactory.types import NonNegative, Positive, PositiveInt

# The four projections of self- and cross-attention that DDPO's codes adapt.
ATTENTION_PROJECTIONS = ["to_q", "to_k", "to_v", "to_out.0"]


class SD(ImageModel):
    """A `StableDiffusionPipeline` that predicts the noise, its UNet trained and all else frozen.

    `guidance` above 1 doubles the network evaluations; in training both halves get gradient, as in
    DDPO. The safety checker is not loaded: it would replace training images by black ones.
    """

    pipeline = "StableDiffusionPipeline"
    process = "vp"
    attention_backends = False
    forward_process: VariancePreserving

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
        lora_rank: PositiveInt = 4,
        lora_alpha: Positive = 4.0,
        lora_targets: list[str] | None = None,
        lora_init: Init = "gaussian",
        size: PositiveInt = 512,
        guidance: NonNegative = 5.0,
        negative_prompt: str = "",
    ) -> None:
        self.device = device
        self.precision = precision or Precision()
        self.memory = memory or Memory()
        self.pipe, self.texts = open_pipeline(
            StableDiffusionPipeline,
            path,
            device,
            self.precision,
            self.memory,
            prompt_cache,
            self._encode,
            whole=whole("unet", finetune),
            always=[negative_prompt] if guidance > 1 else [],
            safety_checker=None,
            requires_safety_checker=False,
        )
        self._require_noise_prediction(path)
        self.unet = self.pipe.unet
        self.forward_process = VariancePreserving(self.pipe.scheduler.alphas_cumprod)
        self.guidance, self.negative_prompt = guidance, negative_prompt
        self.resolution = self.resolution_of(size)
        self._negative = self.encode([negative_prompt]).tensors if guidance > 1 else None
        self.weights, self.lora = set_up(
            self.unet,
            finetune,
            rank=lora_rank,
            alpha=lora_alpha,
            targets=lora_targets or ATTENTION_PROJECTIONS,
            init=lora_init,
            seed=seed,
            memory=self.memory,
        )

    def _require_noise_prediction(self, path: str) -> None:
        kind = self.pipe.scheduler.config.prediction_type
        if kind != "epsilon":
            raise ModelError(f"model.path={path} predicts {kind}; allowed is a model of epsilon")

    def resolution_of(self, size: int) -> Resolution:
        """Any that the autoencoder divides evenly; such a model knows no shift."""
        unit = int(self.pipe.vae_scale_factor)
        if size % unit:
            raise ModelError(f"size={size}: multiples of {unit} are possible")
        return Resolution(shape=(self.unet.config.in_channels, size // unit, size // unit))

    def encode(self, prompts: Sequence[str]) -> Condition:
        """Text embeddings `sequence` `[B, L, D]`."""
        return self.texts(prompts)

    def prepare(self, prompts: Sequence[str], batch: int) -> None:
        """Once they are encoded the encoders go; the negative prompt is at hand already."""
        self.texts.prepare(prompts, batch)

    def _encode(self, prompts: list[str]) -> Text:
        with self.memory.encoding(self.pipe, self.device):
            sequence, _ = self.pipe.encode_prompt(prompts, self.device, 1, False)
        return {"sequence": sequence}

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        """The noise, guided where `guidance` exceeds 1."""
        return guided(self._noise, x, t, condition.tensors, self._negative, self.guidance)

    def _noise(self, x: Tensor, t: Tensor, text: Text) -> Tensor:
        self.evaluations.add(len(x))
        last = len(self.forward_process.alphas_cumprod) - 1
        with self.precision.autocast(x.device):
            noise: Tensor = self.unet(
                x,
                # whole and within the table, as the forward process looks them up
                (1000 * t).round().long().clamp(0, last),
                encoder_hidden_states=text["sequence"],
                return_dict=False,
            )[0]
        return noise.float()

    def decode(self, latents: Tensor) -> Tensor:
        """Pictures by the pipeline's own autoencoder."""
        with self.memory.decoding(self.pipe.vae, self.device):
            return decode_latents(self.pipe.vae, latents)

    def export(self, folder: Path) -> None:
        """LoRA: one folder that both diffusers and PEFT load. Full: a `unet` folder."""
        export(self.pipe, "unet", self.lora, folder)

    def export_whole(self, folder: Path) -> None:
        """A pipeline folder with all parts."""
        export_whole(self.pipe, "unet", self.lora, folder)

    def pipeline_arguments(self) -> dict[str, object]:
        """How this prompt and this guidance are asked of the pipeline itself."""
        arguments: dict[str, object] = {"guidance_scale": self.guidance}
        if self.negative_prompt:
            arguments["negative_prompt"] = self.negative_prompt
        return arguments
