"""Our own decoding loop, which records log-probabilities and values as it draws."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlfactory.engine.base import Completion, Engine, SamplingSettings

if TYPE_CHECKING:
    from rlfactory.model.causal_lm import CausalLM


class Own(Engine):
    """The model draws with the weights that learn: nothing is handed over, and the first ratio is
    exactly 1. The sampler calls `TextModel.rollout`, so the methods of this class do nothing.
    """

    draws_by = "model"

    def open(self, model: "CausalLM") -> None:
        """Nothing to start."""

    def load(self, model: "CausalLM") -> None:
        """Nothing to hand over."""

    def generate(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], settings: SamplingSettings
    ) -> list[Completion]:
        """NotImplementedError: `TextSampler` draws."""
        raise NotImplementedError("engine=own draws by TextModel.rollout")
