"""Adapter for ERNIE-Image and ERNIE-Image-Turbo, at any resolution."""

from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional as F

from rlfactory.model.flow_model import FlowModel
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.pipelines.latents import Patches


class ErnieImage(FlowModel):
    """An `ErnieImagePipeline`; its transformer is trained, the rest frozen.

    Latents are what the network sees, `[B, 128, h, w]`: patches of 2 x 2 latents of the
    autoencoder, normalised by the statistics that it holds. Prompts are padded to `text_tokens`,
    beside their lengths. The language model that rewrites prompts is not loaded.
    """

    pipeline = "ErnieImagePipeline"
    latents = Patches(epsilon=1e-5)  # the pipeline's, which is not that of its autoencoder's file
    attention_backends = False
    patch = 1
    adapted = [f"self_attention.{name}" for name in ("to_q", "to_k", "to_v", "to_out.0")]
    load_options = MappingProxyType({"pe": None, "pe_tokenizer": None})

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        # of a causal model, so that the first tokens do not depend on those that are cut
        encoded = self.pipe.encode_prompt(prompts, device=self.device)
        kept = [rows[: self.text_tokens] for rows in encoded]
        padded = [F.pad(rows, (0, 0, 0, self.text_tokens - len(rows))) for rows in kept]
        lengths = torch.tensor([len(rows) for rows in kept], device=self.device)
        return {"sequence": torch.stack(padded), "count": lengths}

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        sequence, lengths = text["sequence"], text["count"]
        return self.network(x, self._times(t), sequence, lengths, return_dict=False)[0]

    def pipeline_arguments(self) -> dict[str, object]:
        """The pipeline reads whole prompts, and rewrites them unless it is told not to."""
        arguments = super().pipeline_arguments() | {"use_pe": False}
        del arguments["max_sequence_length"]
        return arguments
