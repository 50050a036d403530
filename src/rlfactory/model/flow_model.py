"""The common part of the adapters of rectified flows whose network is a transformer on text."""

from collections.abc import Callable
from functools import cached_property
from typing import ClassVar, Literal, TypeVar, cast

import torch

from rlfactory.dynamics.ops.forward_process import RectifiedFlow
from rlfactory.model.base import Resolution
from rlfactory.model.image_base import PipelineModel
from rlfactory.model.lora import ATTENTION_PROJECTIONS, Init
from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.embedding_cache import IN_MEMORY, PromptCache
from rlfactory.model.pipelines.noise_levels import flow_resolution, units_of
from rlfactory.model.precision import Precision
from rlfactory.utils.types import LoraTargets, NonNegative, Positive, PositiveInt, Size

T = TypeVar("T")


class FlowModel(PipelineModel):
    """A rectified flow; its transformer is trained, the rest frozen.

    `guidance` above 1 doubles the forward passes; at 1 there is no guidance. A subclass sets
    `pipeline`, and `adapted` where LoRA adapts other layers, and implements `_encode` and
    `_predict`.

    Raises:
        ModelError: the model can't be loaded, or does not fit `size`, the adapters or another
            option.
    """

    part = "transformer"
    process = "flow"
    forward_process = RectifiedFlow()
    adapted: ClassVar[list[str]] = ATTENTION_PROJECTIONS
    """The module names that get adapters where `lora_targets` names none."""

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
        text_tokens: PositiveInt = 256,
        guidance: NonNegative = 1.0,
        negative_prompt: str = "",
        timesteps: Literal["exact", "truncated"] = "exact",
    ) -> None:
        """
        Args:
            lora_rank: Rank of the adapters.
            lora_alpha: Adapters are scaled by alpha / rank.
            lora_targets: Module names, or all-linear; null: the attention projections of both kinds
                of blocks.
            lora_init: gaussian | kaiming | orthogonal: initial adapters, always with zero effect.
            text_tokens: Length of the T5 sequence.
            negative_prompt: Only the empty prompt, as in the pipeline.
            timesteps: exact | truncated: the network's time input, t or t truncated to thousandths.
        """
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
            embedding_options=self.embedding_options(size),
        )
        self.check_options()
        self.resolution = self.resolution_of(size)
        targets = lora_targets or self.adapted
        self.set_up_training(
            rank=lora_rank, alpha=lora_alpha, targets=targets, init=lora_init, seed=seed
        )

    def embedding_options(self, size: Size) -> dict[str, object]:
        """What an embedding depends on beside its prompt and the model."""
        del size
        return {"text_tokens": self.text_tokens}

    def check_options(self) -> None:
        """Raise ModelError where an option does not fit the pipeline, which is open."""
        return

    @property
    def latent_channels(self) -> int:
        """Of a sample's latents; the network's input holds 2 x 2 of them, packed."""
        return int(self.network.config.in_channels) // 4

    def resolution_of(self, size: Size) -> Resolution:
        """Any with an even number of latents a side, since 2 x 2 latents make a token."""
        rows, columns = units_of(size, 2 * self.latent_pixels)
        shape = (self.latent_channels, 2 * rows, 2 * columns)
        return flow_resolution(shape, rows * columns, self.pipe.scheduler)

    def kept(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """What `make` gives, made once for each key: positions of tokens, on the device."""
        if key not in self._made:
            # passes with gradient can't use what was made in inference mode
            with torch.inference_mode(False):
                self._made[key] = make()
        return cast("T", self._made[key])

    @cached_property
    def _made(self) -> dict[tuple[object, ...], object]:
        return {}

    def pipeline_arguments(self) -> dict[str, object]:
        """Also `max_sequence_length`: the pipeline truncates prompts as `_encode` does."""
        return super().pipeline_arguments() | {"max_sequence_length": self.text_tokens}
