"""Texts from a language model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.dynamics.token import Token
from rlfactory.model.text import TextModel
from rlfactory.prompts.base import Prompt
from rlfactory.rollout import Rollout, Tokens, chunks, join, take
from rlfactory.sampler.base import Advance, Drawn, Sampler


class TextSampler(Sampler):
    """Draws token after token; an evaluation draws as training does, from numbers of its own."""

    def __init__(self, model: TextModel, *, dynamics: Token, batch: int, advance: Advance) -> None:
        self.model = model
        self.dynamics = dynamics
        self.batch = batch
        self.advance = advance

    def rollout(
        self, prompts: Sequence[Prompt], groups: Tensor, *, seed: int, iteration: int
    ) -> Rollout:
        """Tokens with their log-probabilities and values, and texts."""
        own = [prompts[g] for g in groups]
        index = torch.arange(len(groups))
        uniform = keyed.uniform(seed, "tokens", [iteration], index.tolist(), [self.dynamics.length])
        tokens = self._tokens([prompt.text for prompt in own], uniform)
        return Rollout(
            prompts=[prompt.text for prompt in own],
            metadata=[prompt.metadata for prompt in own],
            groups=groups,
            index=index,
            tokens=tokens,
            texts=self.model.texts(tokens),
        )

    def draw(self, prompts: Sequence[str], *, seed: int, stream: str) -> Drawn:
        """Completions, keyed by a prompt's number."""
        index = list(range(len(prompts)))
        uniform = keyed.uniform(seed, stream, [], index, [self.dynamics.length])
        return Drawn(texts=self.model.texts(self._tokens(prompts, uniform)))

    def _tokens(self, prompts: Sequence[str], uniform: Tensor) -> Tokens:
        # all at once, so that every batch has the same width
        ids, mask = self.model.encode(prompts)
        parts = []
        for rows in chunks(len(ids), self.batch):
            drawn = take(uniform, rows).to(self.model.device)
            parts.append(
                self.model.rollout(take(ids, rows), take(mask, rows), self.dynamics, drawn)
            )
            self.advance(len(rows))
        return join(parts)
