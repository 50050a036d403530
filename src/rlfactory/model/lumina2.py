"""Adapter for Lumina-Image 2.0, at any resolution."""

import torch
from torch import Tensor

from rlfactory.model.flow_model import FlowModel
from rlfactory.model.pipelines.embedding_cache import LENGTHS, TextEmbeddings
from rlfactory.model.precision import exact_inputs

PLAIN = "\0"
"""How a text begins that is encoded without the system prompt."""


class Lumina2(FlowModel):
    """A `Lumina2Pipeline`; its transformer is trained, the rest frozen.

    Prompts follow the pipeline's system prompt; the negative prompt does not. They are padded to
    `text_tokens`, beside their lengths on the CPU. Guidance keeps the length of each row of each
    channel of the conditional velocity, as in the pipeline.
    """

    pipeline = "Lumina2Pipeline"
    attention_backends = False
    adapted = ["attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0"]

    @property
    def latent_channels(self) -> int:
        """The network's own: it makes patches itself."""
        return int(self.network.config.in_channels)

    def _negative_text(self, prompt: str) -> str:
        return PLAIN + prompt

    def _written(self, prompt: str) -> str:
        return f"{self.pipe.system_prompt} <Prompt Start> {prompt}"

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        is_plain = prompts[0].startswith(PLAIN)  # the negative prompt, which is encoded by itself
        sequence, mask = self.pipe._get_gemma_prompt_embeds(
            [p.removeprefix(PLAIN) if is_plain else self._written(p) for p in prompts],
            device=self.device,
            max_sequence_length=self.text_tokens,
        )
        return {"sequence": sequence, LENGTHS: mask.sum(1).cpu()}

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        sequence = text["sequence"]
        mask = torch.arange(sequence.shape[1]) < text[LENGTHS][:, None]
        # it reads lengths from the mask, without waiting for the device if that is on the CPU
        with exact_inputs(self.network.rope_embedder, None, mask):
            velocity: Tensor = self.network(
                hidden_states=x,
                timestep=1 - self._times(t) / 1000,
                encoder_hidden_states=sequence,
                encoder_attention_mask=mask.to(x.device),
                return_dict=False,
            )[0]
        return -velocity

    def _combine(self, negative: Tensor, positive: Tensor) -> Tensor:
        guided = super()._combine(negative, positive)
        norms = [each.norm(dim=-1, keepdim=True) for each in (positive, guided)]
        return guided * (norms[0] / norms[1])
