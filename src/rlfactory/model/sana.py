"""Adapter for SANA and SANA-1.5, at any resolution."""

import inspect

from diffusers import SanaPipeline
from torch import Tensor

from rlfactory.model.flow_model import FlowModel
from rlfactory.model.lora import CROSS_ATTENTION_PROJECTIONS
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.prompt_encoding import PLAIN

INSTRUCTION = inspect.signature(SanaPipeline.__call__).parameters["complex_human_instruction"]


class Sana(FlowModel):
    """A `SanaPipeline`; its transformer is trained, the rest frozen.

    Prompts follow the pipeline's own instruction, to enhance them; the negative prompt does not.
    They are padded to `text_tokens`, with a mask.
    """

    pipeline = "SanaPipeline"
    attention_backends = False
    outside_comfyui = ("",)
    encoded = ("sequence", "mask")
    plain_negative = True
    adapted = CROSS_ATTENTION_PROJECTIONS

    @property
    def patch(self) -> int:
        return int(self.network.config.patch_size)

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        is_plain = prompts[0].startswith(PLAIN)  # the negative prompt, which is encoded by itself
        instruction = None if is_plain else INSTRUCTION.default
        texts = [prompt.removeprefix(PLAIN) for prompt in prompts]
        return self._text_of(texts, complex_human_instruction=instruction)

    def _tokens_read(self) -> int:
        instruction = "\n".join(INSTRUCTION.default)
        return int(len(self.pipe.tokenizer.encode(instruction)) + self.text_tokens - 2)

    def _written(self, prompt: str) -> str:
        return "\n".join(INSTRUCTION.default) + prompt

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        times = self._times(t) * self.network.config.timestep_scale
        velocity: Tensor = self.network(
            x,
            encoder_hidden_states=text["sequence"],
            encoder_attention_mask=text["mask"],
            timestep=times,
            return_dict=False,
        )[0]
        return velocity[:, : x.shape[1]]  # a variance may follow

    def pipeline_arguments(self) -> dict[str, object]:
        """Also `use_resolution_binning=False`: the pipeline would draw a size of its own list."""
        return super().pipeline_arguments() | {"use_resolution_binning": False}
