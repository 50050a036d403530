"""Adapter for Stable Diffusion 3 and 3.5, at any resolution: the example for new adapters."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.dynamics.ops.forward_process import RectifiedFlow
from rlfactory.model.base import Resolution
from rlfactory.model.image_base import PipelineModel
from rlfactory.model.lora import ATTENTION_PROJECTIONS, Init
from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.embedding_cache import IN_MEMORY, PromptCache, TextEmbeddings
from rlfactory.model.pipelines.guidance import network_times
from rlfactory.model.pipelines.noise_levels import flow_resolution
from rlfactory.model.precision import Precision
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import NonNegative, Positive, PositiveInt


class SD3(PipelineModel):
    """A `StableDiffusion3Pipeline`; its transformer is trained, the rest frozen.

    `guidance` above 1 doubles the forward passes; at 1 (the default) there is no guidance.

    Raises:
        ModelError: the model can't be loaded, or does not fit `size` or the adapters.
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
        # before super().__init__, which encodes the negative prompt by _encode
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
            embedding_options={"text_tokens": text_tokens},
        )
        self.resolution = self.resolution_of(size)
        targets = lora_targets or ATTENTION_PROJECTIONS
        self.set_up_training(
            rank=lora_rank, alpha=lora_alpha, targets=targets, init=lora_init, seed=seed
        )

    def resolution_of(self, size: int) -> Resolution:
        """Any multiple of a patch, up to the network's positional embeddings."""
        config = self.network.config
        unit = self.pipe.vae_scale_factor * config.patch_size
        largest = unit * config.pos_embed_max_size
        if size % unit or size > largest:
            raise ModelError(f"size={size}: {unit}, {2 * unit}, ... {largest} are possible")
        edge = size // int(self.pipe.vae_scale_factor)
        shape = (config.in_channels, edge, edge)
        return flow_resolution(shape, (size // unit) ** 2, self.pipe.scheduler)

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        sequence, _, pooled, _ = self.pipe.encode_prompt(
            prompts,
            None,
            None,
            device=self.device,
            do_classifier_free_guidance=False,
            max_sequence_length=self.text_tokens,
        )
        return {"sequence": sequence, "pooled": pooled}

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        velocity: Tensor = self.network(
            hidden_states=x,
            timestep=network_times(t, self.timesteps),
            encoder_hidden_states=text["sequence"],
            pooled_projections=text["pooled"],
            return_dict=False,
        )[0]
        return velocity

    def pipeline_arguments(self) -> dict[str, object]:
        """Also `max_sequence_length`: the pipeline truncates prompts as `_encode` does."""
        return super().pipeline_arguments() | {"max_sequence_length": self.text_tokens}
