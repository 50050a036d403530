"""The common part of the adapters of rectified flows whose network is a transformer on text."""

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from rlfactory.dynamics.ops.forward_process import RectifiedFlow
from rlfactory.model.base import Resolution
from rlfactory.model.image_base import PipelineModel
from rlfactory.model.lora import ATTENTION_PROJECTIONS
from rlfactory.model.pipelines.noise_levels import flow_resolution, units_of
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import PositiveInt, Size

T = TypeVar("T")


class FlowModel(PipelineModel):
    """A rectified flow; its transformer is trained, the rest frozen. ModelError as of its parent.

    `guidance` above 1 doubles the forward passes; at 1 there is no guidance. A subclass sets
    `pipeline`, `encoded`, and `adapted` where LoRA adapts other layers, and implements `_predict`.
    """

    part = "transformer"
    process = "flow"
    forward_process = RectifiedFlow()
    adapted = ATTENTION_PROJECTIONS
    packed: ClassVar[bool] = False
    """Whether the network reads 2 x 2 latents as one, which the pipeline packs and unpacks."""
    embedded_guidance: float | None = None

    def __init__(
        self,
        *given: Any,
        text_tokens: PositiveInt = 256,
        timesteps: Literal["exact", "truncated"] = "exact",
        **options: Any,
    ) -> None:
        """
        Args:
            lora_targets: Module names, or all-linear; null: the attention projections of both kinds
                of blocks.
            text_tokens: To which prompts are padded; longer ones are cut.
            timesteps: exact | truncated: the network's time input, t or t truncated to thousandths.
        """
        # before super().__init__, which encodes the negative prompt by _encode
        self.text_tokens, self.timesteps = text_tokens, timesteps
        self._made: dict[tuple[object, ...], Any] = {}
        super().__init__(*given, **options)

    def check_options(self) -> None:
        """Guidance is not for distilled models."""
        if self.guidance > 1 and self.pipe.config.get("is_distilled"):
            scale = f"model.guidance={self.guidance:g}: this model was distilled to sample without"
            raise ModelError(f"{scale} guidance; type model.guidance=1")

    def embedding_options(self, size: Size) -> dict[str, object]:
        return super().embedding_options(size) | {"text_tokens": self.text_tokens}

    @property
    def latent_channels(self) -> int:
        """Channels of a sample's latents."""
        return int(self.network.config.in_channels) // (4 if self.packed else 1)

    @property
    def patch(self) -> int:
        """Latents of a token, along an edge."""
        return 2

    @property
    def token_pixels(self) -> int:
        """Pixels of a token, along an edge."""
        return self.patch * self.latent_pixels

    @property
    def most_tokens(self) -> int | None:
        """The most tokens along an edge, where the network has positions for so many."""
        return None

    @property
    def latent_times(self) -> tuple[int, ...]:
        """The number of latents in time of a video."""
        return ()

    def resolution_of(self, size: Size) -> Resolution:
        """Any of whole tokens, up to `most_tokens` an edge; of a video with its frames."""
        rows, columns = units_of(size, self.token_pixels, self.most_tokens)
        shape = (self.latent_channels, *self.latent_times, self.patch * rows, self.patch * columns)
        tokens = prod(self.latent_times) * rows * columns
        return flow_resolution(shape, tokens, self.pipe.scheduler)

    def _times(self, t: Tensor) -> Tensor:
        """The network's time input: `1000 t`, or that without its fraction (DanceGRPO, MixGRPO)."""
        return 1000 * t if self.timesteps == "exact" else (1000 * t).trunc()

    def _guidance(self, t: Tensor) -> Tensor | None:
        """The network's guidance input, `[B]`; None: it has none."""
        guidance = self.embedded_guidance
        return None if guidance is None else torch.full_like(t, guidance)

    def kept(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """The result of `make`, made once for each key: positions of tokens, on the device."""
        if key not in self._made:
            # passes with gradient can't use what was made in inference mode
            with torch.inference_mode(False):
                self._made[key] = make()
        return self._made[key]

    def pipeline_arguments(self) -> dict[str, object]:
        """Also `max_sequence_length`: the pipeline truncates prompts as `_encode` does."""
        return super().pipeline_arguments() | {"max_sequence_length": self.text_tokens}
