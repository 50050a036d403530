"""Adapter for Lumina-Image 2.0, at any resolution."""

from types import SimpleNamespace

import torch
from torch import Tensor

from rlfactory.model.flow_model import FlowModel
from rlfactory.model.lora import SINGLE_PROJECTIONS
from rlfactory.model.pipelines.embedding_cache import LENGTHS, TextEmbeddings
from rlfactory.model.precision import exact_inputs
from rlfactory.model.prompt_encoding import PLAIN
from rlfactory.utils.errors import ModelError
from rlfactory.utils.pytree import to_device


class Lumina2(FlowModel):
    """A `Lumina2Pipeline`; its transformer is trained, the rest frozen.

    Prompts follow the pipeline's system prompt; the negative prompt does not. They are padded to
    `text_tokens`, beside their lengths on the CPU. Guidance keeps the length of each row of each
    channel of the conditional velocity, as in the pipeline.
    """

    pipeline = "Lumina2Pipeline"
    attention_backends = False
    outside_comfyui = ("",)
    plain_negative = True
    adapted = SINGLE_PROJECTIONS

    def check_options(self) -> None:
        """The network has positions for so many tokens of text."""
        super().check_options()
        most = int(self.network.config.axes_lens[0]) - 1
        if self.text_tokens > most:
            raise ModelError(
                f"model.text_tokens={self.text_tokens}: this network has positions for {most};"
                f" type model.text_tokens={most}"
            )

    def _written(self, prompt: str) -> str:
        return f"{self.pipe.system_prompt} <Prompt Start> {prompt}"

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        is_plain = prompts[0].startswith(PLAIN)  # the negative prompt, which is encoded by itself
        texts = [prompt.removeprefix(PLAIN) for prompt in prompts]
        both = self.pipe.encode_prompt(
            texts,
            do_classifier_free_guidance=is_plain,
            negative_prompt=texts,
            device=self.device,
            max_sequence_length=self.text_tokens,
        )
        sequence, mask = both[2:] if is_plain else both[:2]
        return {"sequence": sequence, LENGTHS: mask.sum(1).long().cpu()}

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        sequence, counts = text["sequence"], text[LENGTHS].tolist()
        length = sequence.shape[1]
        mask = torch.tensor([[i < count for i in range(length)] for count in counts])
        # what the network's positions ask of the mask, without waiting for the device
        lengths = SimpleNamespace(shape=mask.shape, sum=lambda dim: text[LENGTHS])
        with exact_inputs(self.network.rope_embedder, None, lengths):
            velocity: Tensor = self.network(
                hidden_states=x,
                timestep=1 - self._times(t) / 1000,
                encoder_hidden_states=sequence,
                encoder_attention_mask=to_device(mask, x.device),
                return_dict=False,
            )[0]
        return -velocity

    def _combine(self, negative: Tensor, positive: Tensor, t: Tensor) -> Tensor:
        guided = super()._combine(negative, positive, t)
        length, wanted = (x.norm(dim=-1, keepdim=True) for x in (guided, positive))
        return guided * (wanted / length)
