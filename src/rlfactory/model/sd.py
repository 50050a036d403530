"""Stable Diffusion 1 and 2, of any size."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.dynamics.process import VariancePreserving
from rlfactory.model.base import Resolution
from rlfactory.model.lora_init import Init
from rlfactory.model.memory import Memory
from rlfactory.model.pipeline import ModelError
from rlfactory.model.pipeline_model import PipelineModel
from rlfactory.model.precision import Precision
from rlfactory.model.prompt_cache import IN_MEMORY, PromptCache, Text
from rlfactory.types import NonNegative, Positive, PositiveInt

# The four projections of self- and cross-attention that DDPO's codes adapt.
ATTENTION_PROJECTIONS = ["to_q", "to_k", "to_v", "to_out.0"]


class SD(PipelineModel):
    """A `StableDiffusionPipeline` that predicts the noise, its UNet trained and all else frozen.

    `guidance` above 1 doubles the network evaluations; in training both halves get gradient, as in
    DDPO. The safety checker is not loaded: it would replace training images by black ones.
    """

    pipeline = "StableDiffusionPipeline"
    part = "unet"
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
        super().__init__(
            device,
            precision,
            memory,
            prompt_cache,
            path=path,
            finetune=finetune,
            guidance=guidance,
            negative_prompt=negative_prompt,
            safety_checker=None,
            requires_safety_checker=False,
        )
        self._require_noise_prediction(path)
        self.forward_process = VariancePreserving(self.pipe.scheduler.alphas_cumprod)
        self.resolution = self.resolution_of(size)
        targets = lora_targets or ATTENTION_PROJECTIONS
        self.train(rank=lora_rank, alpha=lora_alpha, targets=targets, init=lora_init, seed=seed)

    def _require_noise_prediction(self, path: str) -> None:
        kind = self.pipe.scheduler.config.prediction_type
        if kind != "epsilon":
            raise ModelError(f"model.path={path} predicts {kind}; allowed is a model of epsilon")

    def resolution_of(self, size: int) -> Resolution:
        """Any that the autoencoder divides evenly; such a model knows no shift."""
        unit = int(self.pipe.vae_scale_factor)
        if size % unit:
            raise ModelError(f"size={size}: multiples of {unit} are possible")
        return Resolution(shape=(self.network.config.in_channels, size // unit, size // unit))

    def _encode(self, prompts: list[str]) -> Text:
        with self.memory.encoding(self.pipe, self.device):
            sequence, _ = self.pipe.encode_prompt(prompts, self.device, 1, False)
        return {"sequence": sequence}

    def _predict(self, x: Tensor, t: Tensor, text: Text) -> Tensor:
        last = len(self.forward_process.alphas_cumprod) - 1
        noise: Tensor = self.network(
            x,
            # whole and within the table, as the forward process looks them up
            (1000 * t).round().long().clamp(0, last),
            encoder_hidden_states=text["sequence"],
            return_dict=False,
        )[0]
        return noise
