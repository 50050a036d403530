"""FLUX.1, dev and schnell, of any size."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from rlfactory.dynamics.process import RectifiedFlow
from rlfactory.dynamics.schedule import dynamic_shift
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


class Flux(PipelineModel):
    """A `FluxPipeline`, its transformer trained and everything else frozen.

    Latents are `[B, 16, h, w]` here as elsewhere; the transformer alone sees them packed, a token
    of 64 numbers for each 2 x 2 of them. `embedded_guidance` is an input of the network (dev was
    distilled from a guided model), so it costs no second evaluation; schnell has none. `guidance`
    above 1 is by a second evaluation, of the negative prompt, as elsewhere.
    """

    pipeline = "FluxPipeline"
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
        embedded_guidance: NonNegative | None = 3.5,
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
        self._require_its_guidance(embedded_guidance)
        self.embedded_guidance = embedded_guidance
        self.resolution = self.resolution_of(size)
        targets = lora_targets or ATTENTION_PROJECTIONS
        self.train(rank=lora_rank, alpha=lora_alpha, targets=targets, init=lora_init, seed=seed)

    def _require_its_guidance(self, guidance: float | None) -> None:
        takes = self.network.config.guidance_embeds
        if takes != (guidance is not None):
            shown = "null" if guidance is None else f"{guidance:g}"
            allowed = "a number, 3.5 as published" if takes else "null: this network takes none"
            raise ModelError(f"model.embedded_guidance={shown}; allowed is {allowed}")

    def resolution_of(self, size: int) -> Resolution:
        """Any with an even number of latents a side, as two by two make a token."""
        unit = 2 * int(self.pipe.vae_scale_factor)
        if size % unit:
            raise ModelError(f"size={size}: multiples of {unit} are possible")
        edge, tokens = 2 * (size // unit), (size // unit) ** 2
        scheduler = self.pipe.scheduler.config
        dynamic = scheduler.use_dynamic_shifting
        return Resolution(
            shape=(self.network.config.in_channels // 4, edge, edge),
            shift=dynamic_shift(tokens) if dynamic else float(scheduler.shift),
            tokens=tokens,
        )

    def _encode(self, prompts: list[str]) -> Text:
        with self.memory.encoding(self.pipe, self.device):
            sequence, pooled, _ = self.pipe.encode_prompt(
                prompts, device=self.device, max_sequence_length=self.text_tokens
            )
        return {"sequence": sequence, "pooled": pooled}

    def _predict(self, x: Tensor, t: Tensor, text: Text) -> Tensor:
        batch, channels, h, w = x.shape
        times = network_times(t, self.timesteps) / 1000  # it multiplies by 1000 itself
        guidance = self._guidance(t)
        with self._unrounded(times, guidance):
            velocity = self.network(
                hidden_states=self.pipe._pack_latents(x, batch, channels, h, w),
                timestep=times,
                guidance=guidance,
                encoder_hidden_states=text["sequence"],
                pooled_projections=text["pooled"],
                txt_ids=x.new_zeros(text["sequence"].shape[1], 3),
                img_ids=self.pipe._prepare_latent_image_ids(
                    batch, h // 2, w // 2, x.device, x.dtype
                ),
                return_dict=False,
            )[0]
        scale = self.pipe.vae_scale_factor
        found: Tensor = self.pipe._unpack_latents(velocity, h * scale, w * scale, scale)
        return found

    @contextmanager
    def _unrounded(self, times: Tensor, guidance: Tensor | None) -> Iterator[None]:
        """Times and guidance reach their embeddings as they are.

        The transformer casts both to what it computes in: in bfloat16 750 would become 752, and a
        guidance of 3500 would be 3504.
        """
        exact = tuple(1000 * value for value in (times, guidance) if value is not None)

        def restore(_: object, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (*exact, *arguments[len(exact) :])

        hook = self.network.time_text_embed.register_forward_pre_hook(restore)
        try:
            yield
        finally:
            hook.remove()

    def _guidance(self, t: Tensor) -> Tensor | None:
        if self.embedded_guidance is None:
            return None
        return torch.full_like(t, self.embedded_guidance)

    def pipeline_arguments(self) -> dict[str, object]:
        """How this prompt and this guidance are asked of the pipeline itself."""
        arguments: dict[str, object] = {"max_sequence_length": self.text_tokens}
        if self.guidance > 1:
            arguments |= {
                "true_cfg_scale": self.guidance,
                "negative_prompt": self.negative_prompt,
            }
        if self.embedded_guidance is not None:
            arguments["guidance_scale"] = self.embedded_guidance
        return arguments
