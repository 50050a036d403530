"""The image adapters' common part: a pipeline, one network of it trained, the rest frozen."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import diffusers
import torch
from torch import Tensor

from rlfactory.model.base import ImageModel
from rlfactory.model.conditioning import guided
from rlfactory.model.finetune import Part, export, export_whole, set_up, whole
from rlfactory.model.frozen import open_pipeline
from rlfactory.model.lora import Lora
from rlfactory.model.lora_init import Init
from rlfactory.model.memory import Memory
from rlfactory.model.pipeline import decode_latents
from rlfactory.model.precision import Precision
from rlfactory.model.prompt_cache import PromptCache, Text
from rlfactory.rollout import Condition

Finetune = Literal["lora", "full"]


class PipelineModel(ImageModel):
    """An adapter says what its pipeline's encoders and network are called with, and no more.

    It is opened first, so that the adapter can look at what it has; then `train` sets it up.
    """

    part: ClassVar[Part]

    lora: Lora | None

    def __init__(
        self,
        device: torch.device,
        precision: Precision | None,
        memory: Memory | None,
        prompt_cache: PromptCache,
        *,
        path: str,
        finetune: Finetune,
        guidance: float,
        negative_prompt: str,
        reads: Mapping[str, object] | None = None,
        **parts: object,
    ) -> None:
        """Open the pipeline at `path`, with `parts` in the place of its own. `reads` is what an
        embedding depends on beside its prompt.
        """
        self.device, self.finetune = device, finetune
        self.precision = precision or Precision()
        self.memory = memory or Memory()
        self.guidance, self.negative_prompt = guidance, negative_prompt
        negatives = [negative_prompt] if guidance > 1 else []
        self.pipe, self.texts = open_pipeline(
            getattr(diffusers, self.pipeline),
            path,
            device,
            self.precision,
            self.memory,
            prompt_cache,
            self._encode,
            whole=whole(self.part, finetune),
            always=negatives,
            reads=reads,
            **parts,
        )
        self._negative = self.encode(negatives).tensors if negatives else None

    @property
    def network(self) -> Any:
        """What is trained."""
        return getattr(self.pipe, self.part)

    def train(
        self, *, rank: int, alpha: float, targets: Sequence[str], init: Init, seed: int
    ) -> None:
        """Have the network, or adapters on it, ready to be trained."""
        self.weights, self.lora = set_up(
            self.network,
            self.finetune,
            rank=rank,
            alpha=alpha,
            targets=targets,
            init=init,
            seed=seed,
            memory=self.memory,
        )

    def encode(self, prompts: Sequence[str]) -> Condition:
        """Text embeddings: `sequence` `[B, L, D]` and, but for SD, `pooled` `[B, P]`."""
        return self.texts(prompts)

    def prepare(self) -> None:
        """Once they are encoded the encoders go; the negative prompt is at hand already."""
        self.texts.prepare()

    @abstractmethod
    def _encode(self, prompts: list[str]) -> Text:
        """Rows for prompts, by the pipeline's encoders."""

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        """The prediction, guided by the negative prompt where `guidance` exceeds 1."""
        return guided(self._counted, x, t, condition.tensors, self._negative, self.guidance)

    def _counted(self, x: Tensor, t: Tensor, text: Text) -> Tensor:
        self.evaluations.add(len(x))
        with self.precision.autocast(x.device):
            found = self._predict(x, t, text)
        return found.float()

    @abstractmethod
    def _predict(self, x: Tensor, t: Tensor, text: Text) -> Tensor:
        """One evaluation of the network for each row, within its autocast."""

    def decode(self, latents: Tensor) -> Tensor:
        """Pictures by the pipeline's own autoencoder."""
        with self.memory.decoding(self.pipe.vae, self.device):
            return decode_latents(self.pipe.vae, latents)

    def export(self, folder: Path) -> None:
        """LoRA: one folder that both diffusers and PEFT load. Full: one named after the network."""
        export(self.pipe, self.part, self.lora, folder)

    def export_whole(self, folder: Path) -> None:
        """A pipeline folder with all parts."""
        export_whole(self.pipe, self.part, self.lora, folder)

    def pipeline_arguments(self) -> dict[str, object]:
        """How this guidance and this negative prompt are asked of the pipeline itself."""
        arguments: dict[str, object] = {"guidance_scale": self.guidance}
        if self.negative_prompt:
            arguments["negative_prompt"] = self.negative_prompt
        return arguments
