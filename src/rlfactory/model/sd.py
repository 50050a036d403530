"""Adapter for Stable Diffusion 1 and 2, at any resolution."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from rlfactory.dynamics.ops.forward_process import VariancePreserving, VelocityPrediction
from rlfactory.model.base import Resolution
from rlfactory.model.image_base import PipelineModel
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.pipelines.noise_levels import units_of
from rlfactory.model.pipelines.scheduler_config import PREDICTIONS, noise_scheduler_fault
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import NonNegative, Positive, PositiveInt, Size

PROCESSES = dict(zip(PREDICTIONS, (VariancePreserving, VelocityPrediction), strict=True))
"""By the `prediction_type` of the pipeline's scheduler."""


class SD(PipelineModel):
    """A `StableDiffusionPipeline`; its UNet is trained, the rest frozen.

    It predicts noise or, as Stable Diffusion 2.1, v: its scheduler's `prediction_type` says which;
    ModelError where it predicts neither.

    `guidance` above 1 doubles the forward passes; in training both halves get gradient, as in DDPO.
    The safety checker is not loaded: it would replace training images by black ones.
    """

    pipeline = "StableDiffusionPipeline"
    part = "unet"
    process = "vp"
    attention_backends = False
    encoded: ClassVar[tuple[str, ...]] = ("sequence",)
    adapted = ["to_q", "to_k", "to_v", "to_out.0"]  # as DDPO's implementations
    clip_tokens = 77
    forward_process: VariancePreserving
    load_options: ClassVar[Mapping[str, Any]] = {
        "safety_checker": None,
        "requires_safety_checker": False,
    }

    def __init__(
        self,
        *given: Any,
        lora_rank: PositiveInt = 4,
        lora_alpha: Positive = 4.0,
        guidance: NonNegative = 5.0,
        **options: Any,
    ) -> None:
        """
        Args:
            lora_targets: Module names, or all-linear; null: the four projections of every
                attention.
        """
        options |= {"lora_rank": lora_rank, "lora_alpha": lora_alpha, "guidance": guidance}
        super().__init__(*given, **options)
        scheduler = self.pipe.scheduler
        process = PROCESSES[scheduler.config.prediction_type]
        self.forward_process = process(scheduler.alphas_cumprod)

    def check_options(self) -> None:
        """The network predicts noise or v."""
        scheduler = self.pipe.scheduler
        if fault := noise_scheduler_fault(type(scheduler).__name__, scheduler.config):
            raise ModelError(f"model.path={self.path} {fault}")

    def resolution_of(self, size: Size) -> Resolution:
        """Any multiple of the autoencoder's factor, without a timestep shift."""
        rows, columns = units_of(size, self.latent_pixels)
        return Resolution(shape=(self.network.config.in_channels, rows, columns))

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        last = len(self.forward_process.alphas_cumprod) - 1
        return self.network(
            x,
            # integers within the table, as the forward process rounds them
            (1000 * t).round().long().clamp(0, last),
            encoder_hidden_states=text["sequence"],
            added_cond_kwargs=self._added_conditions(x, text),
            return_dict=False,
        )[0]

    def _added_conditions(self, x: Tensor, text: TextEmbeddings) -> dict[str, Tensor]:
        """Conditions of the UNet beside the time and the text: nothing."""
        return {}
