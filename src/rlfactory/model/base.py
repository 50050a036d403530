"""The contract of an image model: prompts to conditions, noise to latents, latents to pictures."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlfactory.dynamics.process import Process
from rlfactory.model.evaluations import Evaluations
from rlfactory.model.weights import Weights
from rlfactory.rollout import Condition


class ImageModel(ABC):
    """A text-to-image model. Guidance is applied in `predict` alone, so it is always the same.

    `latent_shape` is `(C, h, w)`, `shift` the schedule's shift that the model was made for,
    `tokens` the image tokens of a transformer (None: it is none), `device` where `predict` runs.
    """

    media: ClassVar[Literal["images", "texts"]] = "images"
    process: ClassVar[Literal["flow", "vp", "tokens"]]

    forward_process: Process
    weights: Weights
    latent_shape: tuple[int, int, int]
    shift: float
    tokens: int | None = None
    device: torch.device

    @cached_property
    def evaluations(self) -> Evaluations:
        """How often the network was evaluated; `predict` counts."""
        return Evaluations()

    @abstractmethod
    def encode(self, prompts: Sequence[str]) -> Condition:
        """One row for each prompt; each distinct prompt is encoded once."""

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
