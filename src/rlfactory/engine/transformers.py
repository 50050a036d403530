"""Continuous batching of transformers: finished responses make room for waiting ones."""

from collections.abc import Sequence
from math import ceil
from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from rlfactory.engine.base import Completion, Engine, EngineError, SamplingSettings, plain_weights
from rlfactory.model.causal_lm import CausalLM
from rlfactory.utils.types import PositiveFraction, PositiveInt

MOST_IN_A_PASS = 8192
"""Tokens; transformers' own default."""


class Transformers(Engine):
    """`generate_batch` on a copy of the network, in the precision of rollouts.

    The copy keeps the trained network's attention as it is, and has merged adapters. All responses
    of a rollout share one stream of random numbers, so a response depends on the others.

    Args:
        page_size: Tokens in a page of the KV cache.
        blocks: Pages of the KV cache; None: as many as a rollout needs, or as fit into `memory`.
        batch_tokens: The most tokens in one pass; None: those of all prompts, at most 8192.
        memory: Share of the free memory that the KV cache may take.
    """

    def __init__(
        self,
        *,
        page_size: PositiveInt = 256,
        blocks: PositiveInt | None = None,
        batch_tokens: PositiveInt | None = None,
        memory: PositiveFraction = 0.5,
    ) -> None:
        self.options: dict[str, Any] = {
            "page_size": page_size,
            "num_blocks": blocks,
            "max_batch_tokens": batch_tokens,
            "max_memory_percent": memory,
        }
        self.network: Any = None

    def open(self, model: CausalLM) -> None:
        with torch.device(model.device):
            self.network = AutoModelForCausalLM.from_config(
                model.network.config, dtype=model.precision.rollout
            )
        self.network.requires_grad_(False).eval()

    def load(self, model: CausalLM) -> None:
        with plain_weights(model) as state:
            self.network.load_state_dict(state)

    def generate(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], settings: SamplingSettings
    ) -> list[Completion]:
        """All prompts at once; the first seed is that of the stream of random numbers."""
        generation = GenerationConfig(
            do_sample=True,
            temperature=settings.temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=settings.length,
            eos_token_id=list(settings.stop) or None,
            suppress_tokens=list(settings.unused) or None,
        )
        found = self._batch(prompts, generation, seeds[0], self._needed(prompts, settings.length))
        failed = [output.error for output in found.values() if output.error is not None]
        if failed:
            raise self._failed(failed[0])
        return [Completion(o.generated_tokens, o.logprobs) for o in found.values()]

    def _needed(self, prompts: Sequence[Sequence[int]], length: int) -> dict[str, Any]:
        """Settings that the options leave open, by what a rollout needs: transformers takes all of
        `memory`, and masks as wide as its cache.
        """
        page = self.options["page_size"]
        needed = {
            "num_blocks": sum(ceil((len(prompt) + length) / page) for prompt in prompts),
            "max_batch_tokens": min(MOST_IN_A_PASS, sum(map(len, prompts))),
        }
        return {key: number for key, number in needed.items() if self.options[key] is None}

    def _batch(
        self,
        prompts: Sequence[Sequence[int]],
        generation: GenerationConfig,
        seed: int,
        needed: dict[str, Any],
    ) -> dict[str, Any]:
        """Outputs by request; with fewer pages, if those that are needed don't fit."""
        try:
            found: dict[str, Any] = self.network.generate_batch(
                [list(prompt) for prompt in prompts],
                generation_config=generation,
                continuous_batching_config=ContinuousBatchingConfig(
                    return_logprobs=True, seed=seed, **self.options | needed
                ),
                progress_bar=False,
            )
        except MemoryError:
            if "num_blocks" not in needed:
                raise
            return self._batch(prompts, generation, seed, {})
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise self._failed(f"{type(error).__name__}: {error}") from error
        return found

    def _failed(self, why: str) -> EngineError:
        """Transformers' error on architectures that are not of plain attention, as Jamba."""
        return EngineError(
            f"transformers' continuous batching failed with {type(self.network).__name__}: {why};"
            " type engine=own"
        )

    def close(self) -> None:
        self.network = None
