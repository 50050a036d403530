"""The contract of a text model: prompts to tokens, tokens to logits and values."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlfactory.dynamics.token import Token
from rlfactory.model.evaluations import Evaluations
from rlfactory.model.weights import Weights
from rlfactory.rollout import Tokens

LOGITS = {"cpu": 2**25, "cuda": 2**28}
"""How many logits are held at once: 128 MiB and 1 GiB of each array of them in float32, of which
learning needs about eight. So memory does not grow with the vocabulary.
"""


class TextModel(ABC):
    """A causal language model with a critic. Dropout is off, so that a ratio begins at 1.

    `vocabulary` is how many logits a token has.
    """

    media: ClassVar[Literal["images", "texts"]] = "texts"
    process: ClassVar[Literal["flow", "vp", "tokens"]] = "tokens"
    forward_process: ClassVar[None] = None

    weights: Weights
    device: torch.device
    vocabulary: int

    def rows_at_once(self, tokens: int, most: int) -> int:
        """How many responses of so many tokens go through the network together, at most `most`: as
        many as have room for their logits, and at least one.
        """
        room = LOGITS.get(self.device.type, LOGITS["cuda"])
        return min(most, max(1, room // (tokens * self.vocabulary)))

    @cached_property
    def evaluations(self) -> Evaluations:
        """Not counted: a token's share of a pass depends on what is cached."""
        return Evaluations()

    @abstractmethod
    def require_room(self, prompts: Sequence[str], length: int) -> None:
        """ModelError unless a response of `length` tokens fits behind each prompt."""

    @abstractmethod
    def encode(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Token ids `[B, P]`, padded on the left, and the mask of the real ones."""

    @abstractmethod
    def rollout(
        self, prompt: Tensor, prompt_mask: Tensor, dynamics: Token, uniform: Tensor
    ) -> Tokens:
        """Responses drawn with `uniform` `[B, G]`, their log-probabilities and their values."""

    @abstractmethod
    def forward(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Logits `[M, V]` and values `[M]` before each of the M real response tokens.

        They come row after row; nothing else goes through the vocabulary's projection.
        """

    @abstractmethod
    def logits(self, tokens: Tokens) -> Tensor:
        """The logits `[M, V]` of `forward`, without the values."""

    @abstractmethod
    def texts(self, tokens: Tokens) -> list[str]:
        """The responses as people read them: to the end of text, without special tokens."""

    @abstractmethod
    def parameter_groups(self) -> list[dict[str, Any]]:
        """What the optimiser moves, with the rates that differ from its own."""

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write the weights in use so that transformers opens them."""

    @abstractmethod
    def export_whole(self, folder: Path) -> None:
        """The same with adapters made part of the network, which then can train no more."""
