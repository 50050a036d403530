"""Adapter for Z-Image and Z-Image-Turbo, at any resolution."""

import torch
from torch import Tensor
from torch.nn import functional as F

from rlfactory.model.flow_model import FlowModel
from rlfactory.model.pipelines.embedding_cache import LENGTHS, TextEmbeddings
from rlfactory.model.pipelines.text_encoders import user_message


class ZImage(FlowModel):
    """A `ZImagePipeline`; its transformer is trained, the rest frozen.

    The network is called with a list of images and one of prompts, each as long as it is; in the
    condition they are padded to `text_tokens`, beside their lengths on the CPU. `guidance` is 1
    more than the pipeline's `guidance_scale`, which is 0 without guidance.
    """

    pipeline = "ZImagePipeline"
    adapted = [f"attention.{name}" for name in ("to_q", "to_k", "to_v", "to_out.0")]

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

    def _written(self, prompt: str) -> str:
        return user_message(self.pipe.tokenizer, prompt, enable_thinking=True)

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        prompts = zip(text["sequence"], text[LENGTHS].tolist(), strict=True)
        velocities = self.network(
            [*x[:, :, None]],  # each `[C, 1, h, w]`: an image is a video of one frame
            (1000 - self._times(t)) / 1000,
            [rows[:length] for rows, length in prompts],
            return_dict=False,
        )[0]
        return -torch.stack(velocities)[:, :, 0]

    def _combine(self, negative: Tensor, positive: Tensor, t: Tensor) -> Tensor:
        return positive + (self.guidance - 1) * (positive - negative)

    def pipeline_arguments(self) -> dict[str, object]:
        """The pipeline's scale counts from 0, and it has its own default."""
        return super().pipeline_arguments() | {"guidance_scale": max(self.guidance - 1, 0.0)}
