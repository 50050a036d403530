"""Stable Diffusion 3 and 3.5, of any size."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.dynamics.process import RectifiedFlow
from rlfactory.model.base import Resolution
from rlfactory.model.conditioning import network_times
from rlfactory.model.lora import ATTENTION_PROJECTIONS
from rlfactory.model.lora_init import Init
from rlfactory.model.memory import Memory
from rlfactory.model.pipeline import ModelError
from rlfactory.model.pipeline_model import PipelineModel
from rlfactory.model.precision import Precision
from rlfactory.model.prompt_cache import IN_MEMORY, PromptCache, Text
from rlfactory.types import NonNegative, Positive, PositiveInt


class SD3(PipelineModel):
    """A `StableDiffusion3Pipeline`, its transformer trained and everything else frozen.

    `guidance` above 1 doubles the network evaluations; at 1 (the default) there is none.
    """

    pipeline = "StableDiffusion3Pipeline"
    part = "transformer"
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
        self.text_tokens, self.timesteps = text_tokens, timesteps
        super().__init__(
            device,
            precision,
            memory,
            prompt_cache,
            path=path,
            finetune=finetune,
            guidance=guidance,
            negative_prompt=negative_prompt,
            reads={"text_tokens": text_tokens},
        )
        self.resolution = self.resolution_of(size)
        targets = lora_targets or ATTENTION_PROJECTIONS
        self.train(rank=lora_rank, alpha=lora_alpha, targets=targets, init=lora_init, seed=seed)

    def resolution_of(self, size: int) -> Resolution:
        """Any that the network has positions for."""
        config = self.network.config
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

    def _predict(self, x: Tensor, t: Tensor, text: Text) -> Tensor:
        velocity: Tensor = self.network(
            hidden_states=x,
            timestep=network_times(t, self.timesteps),
            encoder_hidden_states=text["sequence"],
            pooled_projections=text["pooled"],
            return_dict=False,
        )[0]
        return velocity

    def pipeline_arguments(self) -> dict[str, object]:
        """The pipeline cuts a prompt where it is cut here."""
        return super().pipeline_arguments() | {"max_sequence_length": self.text_tokens}
