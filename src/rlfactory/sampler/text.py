"""Texts from a language model."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from rlfactory import keyed
from rlfactory.dynamics.token import Token
from rlfactory.model.likelihood import compares_whole, response_log_prob
from rlfactory.model.text import TextModel
from rlfactory.model.weights import REFERENCE
from rlfactory.nest import chunks, join, take
from rlfactory.prompts.base import Prompt
from rlfactory.rollout import Rollout, Tokens
from rlfactory.sampler.base import Advance, Drawn, Sampler, numbers


class TextSampler(Sampler):
    """Draws token after token; an evaluation draws as training does, from numbers of its own."""

    def __init__(self, model: TextModel, *, dynamics: Token, batch: int, advance: Advance) -> None:
        self.model = model
        self.dynamics = dynamics
        self.batch = batch
        self.advance = advance

    def batches(
        self,
        prompts: Sequence[Prompt],
        groups: Tensor,
        *,
        seed: int,
        iteration: int,
        rows: Tensor | None = None,
    ) -> Iterator[Rollout]:
        """Tokens with their log-probabilities and values, and texts."""
        every = [prompts[g] for g in groups]
        index = numbers(len(groups), rows)
        uniform = keyed.uniform(seed, "tokens", [iteration], index.tolist(), [self.dynamics.length])
        drawn = self._tokens([prompt.text for prompt in every], index, uniform)
        for part, tokens in zip(self._parts(index), drawn, strict=True):
            asked = take(every, index[part])
            yield Rollout(
                prompts=[prompt.text for prompt in asked],
                metadata=[prompt.metadata for prompt in asked],
                groups=groups[index[part]],
                index=index[part],
                tokens=tokens,
                texts=self.model.texts(tokens),
            )

    def draw(
        self, prompts: Sequence[str], *, seed: int, stream: str, rows: Tensor | None = None
    ) -> Drawn:
        """Completions, keyed by a prompt's number; and their KL where a reference is kept."""
        index = numbers(len(prompts), rows)
        uniform = keyed.uniform(seed, stream, [], index.tolist(), [self.dynamics.length])
        tokens = join([*self._tokens(prompts, index, uniform)])
        kl = self._divergence(tokens) if REFERENCE in self.model.weights else None
        lengths = tokens.mask.sum(1).cpu()
        return Drawn(texts=self.model.texts(tokens), kl=kl, lengths=lengths)

    def _divergence(self, tokens: Tokens) -> Tensor:
        """`log p - log p_reference` of each response, `[N]`, with the weights in use as p."""
        ours = tokens.log_prob
        if compares_whole(self.dynamics):
            ours = self._log_prob(tokens, self.model.weights.in_use)
        return (ours - self._log_prob(tokens, REFERENCE)).sum(1).cpu()

    def _log_prob(self, tokens: Tokens, weights: str) -> Tensor:
        return response_log_prob(self.model, weights, tokens, self.dynamics, self.batch)

    def _parts(self, index: Tensor) -> Iterator[Tensor]:
        """The numbers of those that are drawn together: of each there is one token's logits."""
        return chunks(len(index), self.model.rows_at_once(1, self.batch))

    def _tokens(self, prompts: Sequence[str], index: Tensor, uniform: Tensor) -> Iterator[Tokens]:
        # all at once, so that every batch has the same width, in every process
        ids, mask = self.model.encode(prompts)
        for part in self._parts(index):
            rows, drawn = index[part], take(uniform, part).to(self.model.device)
            tokens = self.model.rollout(take(ids, rows), take(mask, rows), self.dynamics, drawn)
            self.advance(len(part))
            yield tokens
