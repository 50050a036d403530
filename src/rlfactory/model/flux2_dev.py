"""Adapter for FLUX.2 dev, at any resolution."""

from typing import Literal

import torch
from diffusers.pipelines.flux2.pipeline_flux2 import format_input
from torch import Tensor

from rlfactory.model.flux2 import Flux2Klein
from rlfactory.model.lora import Init
from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.embedding_cache import IN_MEMORY, PromptCache
from rlfactory.model.precision import Precision
from rlfactory.utils.types import LoraTargets, NonNegative, Positive, PositiveInt, Size


class Flux2Dev(Flux2Klein):
    """A `Flux2Pipeline`; its transformer is trained, the rest frozen.

    Latents and text are those of `Flux2Klein`. It was distilled from a guided model:
    `embedded_guidance` is an input of the network, and the pipeline has no other guidance.

    Raises:
        ModelError: the model can't be loaded, or does not fit `size` or the adapters.
    """

    pipeline = "Flux2Pipeline"

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
        lora_targets: LoraTargets = None,
        lora_init: Init = "gaussian",
        size: Size = 512,
        text_tokens: PositiveInt = 512,
        embedded_guidance: NonNegative = 4.0,
        timesteps: Literal["exact", "truncated"] = "exact",
    ) -> None:
        """
        Args:
            text_tokens: To which prompts are padded; longer ones are cut.
            embedded_guidance: Guidance as an input of the network.
        """
        self.embedded_guidance = embedded_guidance
        super().__init__(
            device,
            seed,
            precision,
            memory,
            prompt_cache,
            path=path,
            finetune=finetune,
            lora_rank=lora_rank,
            lora_alpha=lora_alpha,
            lora_targets=lora_targets,
            lora_init=lora_init,
            size=size,
            text_tokens=text_tokens,
            timesteps=timesteps,
        )

    def _guidance(self, t: Tensor) -> Tensor:
        return torch.full_like(t, self.embedded_guidance)

    def _written(self, prompt: str) -> str:
        messages = format_input([prompt], self.pipe.system_message)
        written: list[str] = self.pipe.tokenizer.apply_chat_template(messages, tokenize=False)
        return written[0]

    def pipeline_arguments(self) -> dict[str, object]:
        """`guidance_scale` is the embedded guidance."""
        return {
            "guidance_scale": self.embedded_guidance,
            "max_sequence_length": self.text_tokens,
        }
