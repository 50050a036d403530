"""The part of the image adapters that encodes prompts, once each, by a pipeline's text encoders."""

import inspect
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

from rlfactory.model.base import ImageModel
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.pipelines.local_models import height_and_width
from rlfactory.model.pipelines.text_encoders import (
    TOKENIZERS,
    Read,
    TextEncoders,
    prompt_reader,
)
from rlfactory.prompts.ops.pictured import mismatch
from rlfactory.rollout import Condition
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import Size

NEGATIVE = "negative_"
"""How names of the negative prompt's rows beside a prompt's begin."""
PLAIN = "\0"
"""How a text begins that is encoded without the family's template."""


class PromptEncoding(ImageModel):
    """An image model whose prompts the text encoders of a pipeline encode, behind a cache."""

    text_encoders: TextEncoders
    pipe: Any

    negatives_beside: ClassVar[bool] = False
    """Whether `_encode` gives rows of the negative prompt with each prompt's, with guidance, named
    `NEGATIVE` and what they stand for: where the negative prompt is read with the picture."""
    text_tokens: int = 0
    """The most that an encoder reads which is not CLIP's."""
    encoded: ClassVar[tuple[str, ...]] = ()
    """The names of what `encode_prompt` returns, an empty one for what is not read."""
    plain_negative: ClassVar[bool] = False
    """Whether `_encode` is given the negative prompt behind `PLAIN`."""

    def embedding_options(self, size: Size) -> dict[str, object]:
        """Options that an embedding depends on: its key in the cache, beside prompt and model."""
        return {"size": height_and_width(size)} if self.pictures else {}  # pictures have it

    def encode(self, prompts: Sequence[str]) -> Condition:
        """Embeddings: what `_encode` gives, such as `sequence` `[B, L, D]`. ModelError where a
        prompt has a picture, and the model takes none; or the reverse.
        """
        if problem := mismatch(prompts, self.pictures):
            fix = "give it one" if self.pictures else f"a {self.pipeline} takes none"
            raise ModelError(f"{problem}: {fix}")
        return self.text_encoders(prompts)

    def encode_ahead(self, prompts: Sequence[str]) -> None:
        """Encode new prompts in one visit of the text encoders."""
        self.text_encoders.ahead(prompts)

    @cached_property
    def _read(self) -> Read:
        parts = self.pipe.components.items()
        tokenizers = [part for name, part in parts if name.startswith(TOKENIZERS) and part]
        return prompt_reader(tokenizers, self._tokens_read(), self._written)

    def _tokens_read(self) -> int:
        """How many tokens of `_written` are read by an encoder that is not CLIP's."""
        return self.text_tokens

    def _written(self, prompt: str) -> str:
        """The text that is encoded for a prompt, where a family has a template."""
        return prompt

    def prompt_metrics(self, prompts: Sequence[str]) -> dict[str, float]:
        share = sum(self._read(prompt)[1] for prompt in prompts) / max(len(prompts), 1)
        return {"prompts/cut": share} if share else {}

    def _encode_negative(self, prompt: str) -> TextEmbeddings:
        """The one row of the negative prompt, on the device."""
        return self.text_encoders([prompt]).tensors

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        """Rows for prompts, by the pipeline's encoders, which are on the device then: by default
        what its `encode_prompt` returns, as `encoded` names it.

        Of prompts with pictures also the pictures' latents; the negative prompt has none, and
        guidance takes those of the prompts.

        Tensors of one name must have one shape for all prompts. The one named `lengths` stays on
        the CPU: a network that is called with lists reads it without waiting for the device.

        Must not depend on other attributes than those set before `super().__init__`, which calls
        it for the negative prompt.
        """
        return self._text_of(prompts)

    def _text_of(self, prompts: list[str], **options: object) -> TextEmbeddings:
        """The pipeline's `encode_prompt` of prompts alone, with further options."""
        asked = {
            "device": self.device,
            "num_images_per_prompt": 1,
            "do_classifier_free_guidance": False,
            "max_sequence_length": self.text_tokens,
            **options,
        }
        _, _, *takes = inspect.signature(type(self.pipe).encode_prompt).parameters.values()
        # texts for further encoders, where one must say that they are the same
        required = {p.name: None for p in takes if p.default is p.empty}
        given = required | {p.name: asked[p.name] for p in takes if p.name in asked}
        found = self.pipe.encode_prompt(prompts, **given)
        return {name: rows for name, rows in zip(self.encoded, found, strict=False) if name}
