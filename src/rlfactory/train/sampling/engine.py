"""The sampler of language models whose responses an engine draws."""

import atexit
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlfactory.dynamics.token import Token
from rlfactory.engine.base import Completion, Engine, EngineError, SamplingSettings
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.critic import ValueModel
from rlfactory.rollout import Tokens
from rlfactory.train.sampling.base import RolloutRequest
from rlfactory.train.sampling.text_sampler import TextSampler
from rlfactory.utils import rng
from rlfactory.utils.pytree import index_rows, row_chunks, to_device


@dataclass(kw_only=True, eq=False)
class EngineSampler(TextSampler):
    """Lets an engine, which it opens, draw the responses of rollouts; our loop draws those of
    evaluations.

    Raises:
        EngineError: the engine can't be started, or the model is none that engines take.
    """

    engine: Engine

    def __post_init__(self) -> None:
        if not isinstance(self.model, CausalLM):
            raise EngineError(
                f"{type(self.model).__name__} is no transformers model, which engines need:"
                " engine=own"
            )
        self._model = self.model
        self.engine.open(self._model)
        atexit.register(self.engine.close)

    def _rollout(self, request: RolloutRequest) -> Iterator[Tokens]:
        """All of this rank's responses are drawn at once, then measured chunk by chunk."""
        index, key = request.index, (request.seed, "engine", request.iteration)
        ids, mask = (index_rows(column, index) for column in self._model.encode(request.texts))
        rows = [row[real].tolist() for row, real in zip(ids.cpu(), mask.cpu(), strict=True)]
        seeds = [rng.derive_seed(*key, i) % 2**31 for i in index.tolist()]
        settings = SamplingSettings(
            self.dynamics.length,
            self.dynamics.temperature,
            tuple(self._model.stop_ids(self.dynamics).tolist()),
            self._model.stop_texts(self.dynamics),
            self._model.unused_ids,
        )
        self.engine.load(self._model)
        drawn = checked(
            self.engine.generate(rows, seeds, settings), len(rows), settings, self._model.vocabulary
        )
        tokens = _padded(drawn, ids, mask, settings, int(self._model.tokenizer.pad_token_id))
        for chunk in self._chunks(index):
            self.advance(len(chunk))
            yield with_trainer_likelihoods(
                self._model, index_rows(tokens, chunk), self.dynamics, self.batch
            )


def _padded(
    drawn: Sequence[Completion], ids: Tensor, mask: Tensor, settings: SamplingSettings, pad: int
) -> Tokens:
    """Responses as tensors `[B, G]`; likelihoods and values are 0 until they are measured."""

    def rows(values: Sequence[Sequence[float]], dtype: torch.dtype, padding: float) -> Tensor:
        columns = [torch.tensor(list(row), dtype=dtype) for row in values]
        # one row of full length, so that all rollouts have the same width
        columns.append(torch.zeros(settings.length, dtype=dtype))
        table = pad_sequence(columns, batch_first=True, padding_value=padding)[:-1]
        return to_device(table, ids.device)

    lengths = torch.tensor([len(completion.ids) for completion in drawn])
    real = torch.arange(settings.length) < lengths[:, None]
    zeros = torch.zeros(len(drawn), settings.length, device=ids.device)
    ended = torch.tensor([settings.ends(completion.ids) for completion in drawn])
    return Tokens(
        ids,
        mask,
        rows([completion.ids for completion in drawn], torch.int64, pad),
        to_device(real, ids.device),
        to_device(ended, ids.device),
        zeros,
        zeros,
        engine_log_prob=rows([completion.log_probs for completion in drawn], torch.float32, 0.0),
    )


@torch.no_grad()
def with_trainer_likelihoods(
    model: CausalLM, tokens: Tokens, dynamics: Token, batch: int
) -> Tokens:
    """Tokens with the log-probabilities and values by the weights in use, from whole texts: at most
    `batch` responses in one pass, fewer if their logits need it.
    """
    tokens, width = tokens.measured(), tokens.mask.shape[1]
    found = []
    for rows in row_chunks(len(tokens.mask), model.rows_at_once(width, batch)):
        part = index_rows(tokens, rows)
        # a value model also has a value of the state after an end
        states = part.with_end_state().measured() if isinstance(model.critic, ValueModel) else None
        log_prob, value = model.token_log_probs(part, dynamics, states)
        found.append((part.pad(log_prob), (states or part).pad(value)))
    return replace(
        tokens,
        log_prob=torch.cat([log_prob for log_prob, _ in found]),
        value=torch.cat([value for _, value in found]),
    )


def checked(
    completions: Sequence[Completion], count: int, settings: SamplingSettings, vocabulary: int
) -> list[Completion]:
    """The completions that an engine returned, each cut where a stop text is complete.

    Raises:
        EngineError: there are fewer or more than `count`; or one is not as `settings` asked for, or
            has an id outside the vocabulary.
    """
    if len(completions) != count:
        raise EngineError(
            f"the engine returned {len(completions)} responses to {count} prompts; nothing is"
            " learned from them. Resume the run, or set engine=own"
        )
    if (texts := settings.stop_texts) is not None:
        ends = [texts.first_end(completion.ids) for completion in completions]
        completions = [
            Completion(c.ids[:end], c.log_probs[:end])
            for c, end in zip(completions, ends, strict=True)
        ]
    for number, completion in enumerate(completions):
        fault = _fault(completion, settings, vocabulary)
        if fault:
            raise EngineError(
                f"the engine's response {number} {fault}; nothing is learned from it. The engine"
                " must serve the model that is trained, with its tokenizer"
            )
    return [*completions]


def _fault(completion: Completion, settings: SamplingSettings, vocabulary: int) -> str | None:
    ids, log_probs = completion.ids, completion.log_probs
    if not ids:
        return "is empty"
    if len(ids) > settings.length:
        return f"has {len(ids)} tokens, and dynamics.length={settings.length} were asked for"
    outside = [i for i in ids if not 0 <= i < vocabulary]
    if outside:
        return f"has token {outside[0]}, outside the model's {vocabulary} tokens"
    if unused := {*ids} & {*settings.unused}:
        return f"has id {min(unused)}, which no token has"
    if any(i in settings.stop for i in ids[:-1]):
        return "goes on after a stop token"
    if len(ids) < settings.length and not settings.ends(ids):
        return f"ends after {len(ids)} tokens without a stop token"
    if len(log_probs) != len(ids):
        return f"has {len(log_probs)} log-probabilities for {len(ids)} tokens"
    # a little above 0 by rounding
    if not all(math.isfinite(value) and value < 1e-3 for value in log_probs):
        return "has a log-probability that is no finite number below 0"
    return None
