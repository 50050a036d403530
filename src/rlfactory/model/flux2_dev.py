"""Adapter for FLUX.2 dev, at any resolution."""

from typing import Any

from diffusers.pipelines.flux2.pipeline_flux2 import format_input

from rlfactory.model.flux2 import Flux2Klein
from rlfactory.utils.types import NonNegative, PositiveInt


class Flux2Dev(Flux2Klein):
    """A `Flux2Pipeline`; its transformer is trained, the rest frozen.

    Latents and text are those of `Flux2Klein`. It was distilled from a guided model:
    `embedded_guidance` is an input of the network, and the pipeline has no other guidance.
    """

    pipeline = "Flux2Pipeline"

    absent = ("guidance", "negative_prompt")

    def __init__(
        self,
        *given: Any,
        text_tokens: PositiveInt = 512,
        embedded_guidance: NonNegative = 4.0,
        **options: Any,
    ) -> None:
        """
        Args:
            embedded_guidance: Guidance as an input of the network.
        """
        self.embedded_guidance = embedded_guidance
        super().__init__(*given, text_tokens=text_tokens, **options)

    def _written(self, prompt: str) -> str:
        messages = format_input([prompt], self.pipe.system_message)
        written: list[str] = self.pipe.tokenizer.apply_chat_template(messages, tokenize=False)
        return written[0]

    def pipeline_arguments(self) -> dict[str, object]:
        """`guidance_scale` is the embedded guidance."""
        return {"guidance_scale": self.embedded_guidance, "max_sequence_length": self.text_tokens}
