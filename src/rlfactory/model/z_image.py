"""Adapter for Z-Image and Z-Image-Turbo, at any resolution."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from rlfactory.dynamics.ops.forward_process import RectifiedFlow
from rlfactory.model.base import Resolution
from rlfactory.model.image_base import PipelineModel
from rlfactory.model.lora import Init
from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.embedding_cache import (
    IN_MEMORY,
    LENGTHS,
    PromptCache,
    TextEmbeddings,
)
from rlfactory.model.pipelines.guidance import network_times
from rlfactory.model.pipelines.noise_levels import flow_resolution
from rlfactory.model.precision import Precision
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import NonNegative, Positive, PositiveInt

ATTENTION_PROJECTIONS = ["attention.to_q", "attention.to_k", "attention.to_v", "attention.to_out.0"]


class ZImage(PipelineModel):
    """A `ZImagePipeline`; its transformer is trained, the rest frozen.

    The network is called with a list of images and one of prompts, each as long as it is; in the
    condition they are padded to `text_tokens`, beside their lengths on the CPU. `guidance` is 1
    more than the pipeline's `guidance_scale`, which is 0 without guidance.

    Raises:
        ModelError: the model can't be loaded, or does not fit `size` or the adapters.
    """

    pipeline = "ZImagePipeline"
    part = "transformer"
    process = "flow"
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
        text_tokens: PositiveInt = 512,
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
        """Any with an even number of latents a side, since 2 x 2 latents make a token."""
        unit = 2 * int(self.pipe.vae_scale_factor)
        if size % unit:
            raise ModelError(f"size={size}: multiples of {unit} are possible")
        edge, tokens = 2 * (size // unit), (size // unit) ** 2
        shape = (self.network.config.in_channels, edge, edge)
        return flow_resolution(shape, tokens, self.pipe.scheduler)

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        # the pipeline writes its chat template into the list that it gets
        embeddings, _ = self.pipe.encode_prompt(
            [*prompts],
            device=self.device,
            do_classifier_free_guidance=False,
            max_sequence_length=self.text_tokens,
        )
        lengths = [len(rows) for rows in embeddings]
        padded = [F.pad(rows, (0, 0, 0, self.text_tokens - len(rows))) for rows in embeddings]
        return {"sequence": torch.stack(padded), LENGTHS: torch.tensor(lengths)}

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        prompts = zip(text["sequence"], text[LENGTHS].tolist(), strict=True)
        velocities = self.network(
            [*x[:, :, None]],  # each `[C, 1, h, w]`: an image is a video of one frame
            1 - network_times(t, self.timesteps) / 1000,
            [rows[:length] for rows, length in prompts],
            return_dict=False,
        )[0]
        return -torch.stack(velocities)[:, :, 0]

    def pipeline_arguments(self) -> dict[str, object]:
        """The pipeline's scale counts from 0, and it has its own default."""
        arguments: dict[str, object] = {"max_sequence_length": self.text_tokens}
        arguments["guidance_scale"] = max(self.guidance - 1, 0.0)
        if self.negative_prompt:
            arguments["negative_prompt"] = self.negative_prompt
        return arguments
