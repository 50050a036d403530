"""The sampler of language models."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from rlfactory.dynamics.token import Token
from rlfactory.model.text_base import TextModel, response_log_prob
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.rollout import GeneratedSamples, Tokens
from rlfactory.train.sampling.base import Advance, RolloutRequest, Sampler
from rlfactory.utils import rng
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.pytree import concat, index_rows, row_chunks, row_numbers, to_device


@dataclass(eq=False)
class TextSampler(Sampler):
    """Draws token after token; evaluations by the same dynamics as rollouts.

    Attributes:
        dynamics: how a token is drawn, and its likelihood.
        batch: the most responses drawn together.
        advance: called after each batch.
        in_order: whether the samples drawn together follow from their numbers alone, rather than
            from the lengths of their prompts.
    """

    model: TextModel
    _: KW_ONLY
    dynamics: Token
    batch: int
    advance: Advance
    in_order: bool = False

    @property
    def of_policy(self) -> "TextSampler":
        """A sampler whose rollouts are drawn from the policy, also where these are of the data."""
        return TextSampler(**{f.name: getattr(self, f.name) for f in fields(TextSampler)})

    def _fields(self, request: RolloutRequest) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        """Tokens with their log-probabilities and values, and their texts."""
        chunks = self._chunks(request.index)
        for chunk, tokens in zip(chunks, self._rollout(request), strict=True):
            yield chunk, {"tokens": tokens, "texts": self.model.texts(tokens)}

    def _rollout(self, request: RolloutRequest) -> Iterator[Tokens]:
        """The tokens of the samples, a chunk of `_chunks` each."""
        key, numbers = [request.iteration], request.index.tolist()
        uniform = rng.uniform(request.seed, "tokens", key, numbers, [self.dynamics.length])
        return self._tokens(request.texts, request.index, uniform)

    def draw(
        self, prompts: Sequence[str], *, seed: int, stream: str, rows: Tensor | None = None
    ) -> GeneratedSamples:
        """Draw completions, with their KL divergence where the model keeps a reference."""
        index = row_numbers(len(prompts), rows)
        uniform = rng.uniform(seed, stream, [], index.tolist(), [self.dynamics.length])
        tokens = concat([*self._tokens(prompts, index, uniform)]).measured()
        drawn = GeneratedSamples(
            texts=self.model.texts(tokens),
            lengths=tokens.response_lengths,
            ended=tokens.ended_on_cpu,
        )
        if REFERENCE not in self.model.weights:
            return drawn
        reference = response_log_prob(self.model, REFERENCE, tokens, self.dynamics, self.batch)
        divergence = (tokens.log_prob - reference).sum(1).cpu()
        return replace(drawn, kl=divergence, reference_log_prob=reference.sum(1).cpu())

    def _chunks(self, index: Tensor) -> Iterator[Tensor]:
        """The rows that are drawn together: as many as the logits of one token each allow."""
        size = self.model.rows_at_once(1, self.batch)
        if self.in_order:  # a part of the batch, at whose multiples other ranks may begin
            size = next(n for n in range(size, 0, -1) if self.batch % n == 0)
        return row_chunks(len(index), size)

    def _tokens(self, prompts: Sequence[str], index: Tensor, uniform: Tensor) -> Iterator[Tokens]:
        """The tokens of the rows `index`, in order, a chunk of `_chunks` each.

        Prompts of like length are drawn together, so that little of a batch is padding. A response
        does not depend on that: its random numbers are its own.
        """
        # all prompts at once, so that every batch has the same width on every rank: they are
        # concatenated and gathered
        ids, mask = self.model.encode(prompts)
        chunks = [*self._chunks(index)]
        order = torch.arange(len(index)) if self.in_order else None
        if order is None and len(chunks) > 1:
            lengths = mask.sum(1).cpu()[index]
            order = lengths.argsort(stable=True) if bool((lengths != lengths[0]).any()) else None
        drawn = []
        for chunk in chunks:
            picked = chunk if order is None else order[chunk]
            given, real = (index_rows(column, index[picked]) for column in (ids, mask))
            numbers = index_rows(uniform, picked)
            if order is None:
                yield self._drawn(given, real, numbers)
                continue
            first = int((~real).all(0).sum())  # padding of all rows: it is on the left
            tokens = self._drawn(given[:, first:], real[:, first:], numbers)
            drawn.append(replace(tokens, prompt=given, prompt_mask=real))
        if order is None:
            return
        whole = index_rows(concat(drawn), order.argsort())
        for chunk in chunks:
            yield index_rows(whole, chunk)

    def _drawn(self, ids: Tensor, mask: Tensor, uniform: Tensor) -> Tokens:
        numbers = to_device(uniform, self.model.device)
        # read once, for texts, micro-batches and mean lengths
        tokens = self.model.rollout(ids, mask, self.dynamics, numbers).measured()
        self.advance(len(ids))
        if not tokens.has_log_probs:
            raise TrainingError(
                "the model's logits are not finite: its weights have diverged, and no token can be"
                " drawn. Begin a new run with a smaller optimizer.lr or precision=fp32"
            )
        return tokens
