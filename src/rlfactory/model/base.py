"""The contract of an image model: prompts to conditions, noise to latents, latents to pictures."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlfactory.dynamics.process import Process
from rlfactory.model.evaluations import Evaluations
from rlfactory.model.precision import Precision
from rlfactory.model.weights import Weights
from rlfactory.rollout import Condition


@dataclass(frozen=True)
class Resolution:
    """What follows from a picture's size: the latents' `shape` `(C, h, w)`, the schedule's `shift`,
    and the image `tokens` of a transformer (None: it is none).
    """

    shape: tuple[int, int, int]
    shift: float = 1.0
    tokens: int | None = None


class ImageModel(ABC):
    """A text-to-image model. Guidance is applied in `predict` alone, so it is always the same.

    `resolution` is that of rollouts, `device` where `predict` runs; `attention_backends` says
    whether diffusers' backends of attention mean anything to the network.
    """

    media: ClassVar[Literal["images", "texts"]] = "images"
    pipeline: ClassVar[str]  # the class of diffusers that it is a part of
    process: ClassVar[Literal["flow", "vp", "tokens"]]
    attention_backends: ClassVar[bool] = True

    forward_process: Process
    weights: Weights
    resolution: Resolution
    device: torch.device

    @cached_property
    def evaluations(self) -> Evaluations:
        """How often the network was evaluated; `predict` counts."""
        return Evaluations()

    @cached_property
    def precision(self) -> Precision:
        """What the network computes in; float32 unless an adapter says otherwise."""
        return Precision()

    @abstractmethod
    def resolution_of(self, size: int) -> Resolution:
        """That of pictures of `size` pixels a side; an error where there are none."""

    @abstractmethod
    def encode(self, prompts: Sequence[str]) -> Condition:
        """One row for each prompt; each distinct prompt is encoded once."""

    def prepare(self) -> None:
        """Encode all prompts of its cache, and let go of what encodes them.

        A prompt that is asked for later is encoded all the same. A model without text encoders has
        nothing to do.
        """
        return

    @abstractmethod
    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        """The prediction for `x` `[B, C, h, w]` at times `t` `[B]` in [0, 1], in float32."""

    @abstractmethod
    def decode(self, latents: Tensor) -> Tensor:
        """Pictures `[B, 3, H, W]`, uint8, rounded; on the CPU."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What the optimiser moves."""
        return [{"params": list(self.weights.parameters.values())}]

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write the weights in use so that diffusers opens them."""

    @abstractmethod
    def export_whole(self, folder: Path) -> None:
        """Write all of the pipeline with the weights in use, adapters made part of them.

        The model is not to be trained afterwards.
        """

    @abstractmethod
    def pipeline_arguments(self) -> dict[str, object]:
        """What its pipeline is to be called with to predict as `predict` does."""
