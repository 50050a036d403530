"""The contract of a text model: encode prompts, sample responses, compute logits and values.

Shapes: B prompts of P tokens, responses of at most G tokens, M real response tokens in a batch
(row after row, without padding), a vocabulary of V tokens.

A constructor's keyword-only parameters are its configuration (`conf/model/NAME.yaml`). Before them
it may name, in any order, the run-time arguments `device` (torch.device), `seed` (int) and
`has_critic` (bool: whether the algorithm reads values), which `train/build.py` passes by name; the
others that `base.py` lists are meant for image models.

Order of calls in a run: constructor; `hardware.prepare` (which may shard `weights`);
`check_lengths` with all prompts; `parameter_groups`; `weights.add` for every set that the algorithm
needs; then in each iteration `encode`, `rollout` and `texts`, and `measure` for each micro-batch;
at checkpoints `export`.
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rlfactory.dynamics.token import Token
from rlfactory.model.base import Model
from rlfactory.model.lm.generate import StopTexts
from rlfactory.model.lm.logits import Work
from rlfactory.model.lm.prompt_format import PromptFormat
from rlfactory.model.lm.tokenized import (
    IMPOSSIBLE,
    LongPrompts,
    padded_completions,
    padded_prompts,
    require_rows,
)
from rlfactory.prompts.ops.chat import THOUGHTS_END
from rlfactory.rollout import Tokens
from rlfactory.utils.errors import ModelError
from rlfactory.utils.pytree import to_device
from rlfactory.utils.sizes import CHUNKS, MAX_LOGITS
from rlfactory.utils.types import Media

log = logging.getLogger(__name__)
COUNTED_TOGETHER = 1000
"""Prompts whose tokens are in memory at once: tokenizers keep far more than their ids."""


class TextModel(Model):
    """A causal language model with a critic.

    Dropout is off: a replayed token has the likelihood that it was drawn with.

    Class attributes (literals: they are also read from the source, without importing torch):
        media: what is generated, "texts".
        process: "tokens"; decides which dynamics fit.
        forward_process: None; there is no diffusion process.
        reads_pictures: whether a prompt may have a picture, which the model reads.
        absent: options of ancestors' constructors that the class has not.

    Args:
        device: where token ids are needed.
        prompts: how the model is given prompts; it has the tokenizer.
        end_ids: the tokens that end a response.
        context: the most tokens of a prompt with its response.
        vocabulary: V, the number of logits of a token.
        rows: the tokens that the embedding has.
        max_prompt_length: the most tokens of a prompt; None: as many as leave room.
        long_prompts: what becomes of longer ones.

    Attributes:
        weights: the trained parameters, critic included, and the policy's weight sets.
        unused_ids: ids that no token has: embeddings are often padded to a round number.
        may_share_prompts: whether passes may read equal prompts once; not where all ranks make the
            same passes, which `hardware.prepare` sets.
    """

    media: ClassVar[Media] = "texts"
    process: ClassVar[Literal["flow", "vp", "tokens"]] = "tokens"
    forward_process: ClassVar[None] = None
    reads_pictures: ClassVar[bool] = False
    absent: ClassVar[tuple[str, ...]] = ()

    may_share_prompts: bool = True

    def __init__(
        self,
        device: torch.device,
        prompts: PromptFormat,
        end_ids: set[int],
        *,
        context: int,
        vocabulary: int,
        rows: int,
        max_prompt_length: int | None,
        long_prompts: LongPrompts,
    ) -> None:
        self.device, self.prompts, self.tokenizer = device, prompts, prompts.tokenizer
        self.context, self.rows = context, rows
        self.max_prompt_length, self.long_prompts = max_prompt_length, long_prompts
        self._end_ids = sorted(end_ids)
        self._room: int | None = None
        self._left_out: set[str] = set()
        self._stop_texts: dict[tuple[str, ...], StopTexts] = {}
        self.set_vocabulary(vocabulary, device)

    def set_vocabulary(self, vocabulary: int, device: torch.device) -> None:
        """Note how many logits a token has, and which of their ids no token has."""
        used = {*self.tokenizer.get_vocab().values()}
        self.vocabulary = vocabulary
        self.unused_ids = tuple(sorted({*range(vocabulary)} - used))
        self._unused = torch.tensor(self.unused_ids, dtype=torch.int64, device=device)

    def without_unused(self, logits: Tensor) -> Tensor:
        """Float32 logits with those of ids that no token has changed in place to `IMPOSSIBLE`."""
        # no backward pass of what computed them reads them
        return logits.index_fill_(-1, self._unused, IMPOSSIBLE) if self.unused_ids else logits

    @property
    def shares_prompts(self) -> bool:
        """Whether a pass reads equal prompts once; micro-batches then keep them together."""
        return False

    def rows_at_once(self, tokens: int, most: int) -> int:
        """How many responses of so many tokens go through the network at once, 1 to `most`."""
        return min(most, max(1, self._max_logits // (tokens * self.vocabulary)))

    def logits_at_once(self, count: int) -> int:
        """How many of the `count` tokens of a pass have logits at the same time."""
        if count * self.vocabulary <= self._max_logits:
            return count
        return max(1, self._max_logits // CHUNKS // self.vocabulary)

    @property
    def _max_logits(self) -> int:
        return MAX_LOGITS.get(self.device.type, MAX_LOGITS["cuda"])

    def check_lengths(self, prompts: Sequence[str], length: int) -> frozenset[str]:
        """Check that a response of `length` tokens fits behind each prompt.

        Returns:
            The prompts that are to be left out, as it does not fit and options say so.

        Raises:
            ModelError: it does not, for at least one other prompt; the message quotes the longest.
        """
        room = min(self.context - length, self.max_prompt_length or self.context)
        if self.long_prompts == "cut" and room > 1:
            self._room = room
        lengths = dict[str, int]()
        for first in range(0, len(prompts), COUNTED_TOGETHER):
            some = prompts[first : first + COUNTED_TOGETHER]
            lengths.update(zip(some, map(len, self._prompt_ids(some)), strict=True))
        long = [prompt for prompt, count in lengths.items() if count > room]
        chats = [prompt for prompt in long if self.prompts.messages(prompt) is not None]
        if not long or self.long_prompts == "drop":
            self._left_out |= {*long}
            return frozenset(long)
        if self._room is not None and not chats:
            log.warning("%d prompts of more than %d tokens are cut from the left", len(long), room)
            return frozenset()
        longest = max(long, key=lambda prompt: lengths[prompt])
        spare = self.context - (most := lengths[longest])
        if self._room is not None:
            remedy = "a conversation can't be cut, as its template would be; type"
        elif self.max_prompt_length and most <= self.context - length:
            remedy = "type a larger model.max_prompt_length, or"
        else:
            fits = f", or type dynamics.length={spare}" if spare > 0 else ""
            remedy = f"shorten the prompts{fits}, or leave them out:"
        raise ModelError(
            f"prompts leave too little room: {longest[:40]!r}... has {most} tokens, and with"
            f" {length} for what follows the model's {self.context} leave {max(0, room)} for a"
            f" prompt; {remedy} model.long_prompts=drop"
        )

    def encode(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Token ids of prompts, `[B, P]`, padded on the left, and the mask of the real ones.

        Args:
            prompts: conversations (`prompts.ops.chat.ChatText`), which the chat template writes;
                and texts, after an end of text where documents begin so in pretraining.

        Raises:
            ModelError: a prompt is empty, or a conversation that the model has no template for.
        """
        rows = [self._fitting(row) for row in self._prompt_ids(prompts)]
        ids, mask = padded_prompts(rows, self.tokenizer.pad_token_id)
        return to_device(ids, self.device), to_device(mask, self.device)

    def _prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        ids = self.prompts.prompt_ids(prompts)
        require_rows(self.tokenizer, ids, self.rows)
        return self.with_pictures(prompts, ids)

    def with_pictures(self, prompts: Sequence[str], ids: list[list[int]]) -> list[list[int]]:
        """Token ids of prompts with those of their pictures; of texts they are as they were."""
        return ids

    def _fitting(self, ids: list[int]) -> list[int]:
        """The end of a prompt that is to be cut, behind the token that documents begin with."""
        if self._room is None or len(ids) <= self._room:
            return ids
        begin = ids[:1] if ids[0] in self.tokenizer.all_special_ids else []
        return [*begin, *ids[len(ids) - self._room + len(begin) :]]

    def encode_completions(
        self, prompts: Sequence[str], texts: Sequence[str], length: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids of given completions of prompts with their end.

        They are those that follow the prompt's own tokens, as sampling continues these. Each is cut
        after `length` tokens, if that is not None, and where the context ends.

        Returns:
            `[B, G]`, padded on the right; the mask of the real ones; and `[B]`, whether the
            end is among them. All on the CPU.

        Raises:
            ModelError: a prompt leaves no room, or the chat template does not write an answer.
        """
        given = self.prompts.prompt_ids(prompts)
        rows = self.prompts.completion_ids(prompts, texts, given)
        require_rows(self.tokenizer, rows, self.rows)
        shown = self.with_pictures(prompts, given)
        room = [self.context - len(self._fitting(ids)) for ids in shown]
        limits = room if length is None else [min(length, own) for own in room]
        return padded_completions(rows, limits, self.tokenizer.pad_token_id)

    def thought_lengths(self, prompts: Sequence[str], texts: Sequence[str]) -> list[int]:
        """The number of tokens of given completions, not cut, up to the one that completes the
        first `</think>`; 0 without one.
        """
        ends = self._texts_of((THOUGHTS_END,))
        rows = self.prompts.completion_ids(prompts, texts)
        numbers = [ends.first_end(ids) for ids in rows]
        pairs = zip(rows, numbers, strict=True)
        return [number if ends.is_completed(ids[:number]) else 0 for ids, number in pairs]

    def prompt_metrics(self, prompts: Sequence[str]) -> dict[str, float]:
        """The share of prompts that are cut, and how many of the run's were left out, where any."""
        found = {"prompts/left_out": float(len(self._left_out))} if self._left_out else {}
        if self._room is not None:
            long = [len(ids) > self._room for ids in self.prompts.prompt_ids(prompts)]
            found["prompts/cut"] = sum(long) / max(len(long), 1)
        return found

    def as_given(self, prompt: str) -> str:
        """A prompt as the model reads it, what a template adds and special tokens included."""
        (ids,) = self.prompts.prompt_ids([prompt])
        return str(self.tokenizer.decode(ids))

    def as_learned(self, prompt: str, text: str, length: int | None = None) -> str:
        """The part that is learned of a completion after its prompt, its end included."""
        (ids,), (mask,), _ = self.encode_completions([prompt], [text], length)
        return str(self.tokenizer.decode(ids[mask]))

    def stop_ids(self, dynamics: Token) -> Tensor:
        """Ids of the tokens that end a response, on the CPU."""
        ids = [*self._end_ids] if dynamics.stop_at_end else []
        for text in dynamics.stop if dynamics.stop_match == "token" else []:
            encoded = self.tokenizer(text, add_special_tokens=False).input_ids
            if len(encoded) != 1:
                raise ModelError(
                    f"dynamics.stop: {text!r} is {len(encoded)} tokens, and with"
                    " dynamics.stop_match=token allowed is one; dynamics.stop_match=text takes any"
                )
            ids += encoded
        return torch.tensor(ids, dtype=torch.int64)

    def stop_texts(self, dynamics: Token) -> StopTexts | None:
        """Texts that end a response, wherever their tokens begin and end; None: there are none."""
        has_any = dynamics.stop_match == "text" and dynamics.stop
        return self._texts_of(tuple(dynamics.stop)) if has_any else None

    def _texts_of(self, texts: tuple[str, ...]) -> StopTexts:
        if texts not in self._stop_texts:  # it keeps what it learned of each token
            self._stop_texts[texts] = StopTexts(self.tokenizer, texts)
        return self._stop_texts[texts]

    @abstractmethod
    def rollout(
        self, prompt: Tensor, prompt_mask: Tensor, dynamics: Token, uniform: Tensor
    ) -> Tokens:
        """Sample responses, with their log-probabilities and values.

        Args:
            prompt: token ids `[B, P]`, from `encode`, with `prompt_mask`.
            dynamics: how a token is drawn from its logits.
            uniform: the random numbers `[B, G]` that decide the draws.

        Raises:
            ModelError: prompt and response do not fit into the context.
        """

    @abstractmethod
    def measure(
        self, tokens: Tokens, work: Work, *columns: Tensor, value_tokens: Tokens | None = None
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        """One pass over prompts and responses, with gradient, whose logits need not fit in memory.

        Args:
            work: computes results `[m, ...]` from the float32 logits `[m, V]` before m of the M
                real response tokens, and the same rows of the columns; it is called for
                `logits_at_once` of them at a time.
            columns: tensors `[M, ...]`.
            value_tokens: the same responses by `with_end_state`, where states after the end have
                values too; None: `tokens`.

        Returns:
            The results for all M tokens, the critic's values `[M]` (or of each of `value_tokens`),
            and the hidden states `[M, d]`.

        Raises:
            ModelError: `value_tokens` are given, and the critic is no value model.
        """

    def token_log_probs(
        self, tokens: Tokens, dynamics: Token, value_tokens: Tokens | None = None
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities `[M]` of the response tokens, and the values, by `measure`."""

        def look_up(logits: Tensor, ids: Tensor) -> tuple[Tensor]:
            return (dynamics.step(logits, next=ids).log_prob,)

        ids = tokens.real(tokens.response)
        (log_probs,), values, _ = self.measure(tokens, look_up, ids, value_tokens=value_tokens)
        return log_probs, values

    @abstractmethod
    def measure_states(self, states: Tensor, work: Work, *columns: Tensor) -> tuple[Tensor, ...]:
        """`measure` for the hidden states of an earlier pass, without the critic."""

    @abstractmethod
    def states_and_projection(self, tokens: Tokens) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Hidden states `[M, d]`, and the function from rows of them to their logits.

        It keeps the weights that are in use now, and may be called when others are.
        """

    def forward(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Logits `[M, V]` and values `[M]` before each real response token, all at once."""
        (logits,), values, _ = self.measure(tokens, lambda logits: (logits,))
        return logits, values

    def texts(self, tokens: Tokens) -> list[str]:
        """The responses as text, up to the token that ends them, without special tokens."""
        ids, lengths = tokens.response.tolist(), tokens.response_lengths.tolist()
        rows = [row[:length] for row, length in zip(ids, lengths, strict=True)]
        return self.tokenizer.batch_decode(rows, skip_special_tokens=True)


@torch.no_grad()
def response_log_prob(
    model: TextModel, weights: str, tokens: Tokens, dynamics: Token, batch: int
) -> Tensor:
    """Log-probabilities `[B, G]` of the response tokens under the weight set `weights`, 0 on
    padding, at most `batch` responses in one forward pass; fewer if their logits need it.
    """

    log_probs = torch.zeros_like(tokens.log_prob)
    tokens, size = tokens.measured(), model.rows_at_once(log_probs.shape[1], batch)
    with model.weights(weights):
        for start in range(0, len(log_probs), size):
            rows = slice(start, start + size)
            part = tokens.part(rows)
            found, _ = model.token_log_probs(part, dynamics)
            log_probs[rows, : part.mask.shape[1]] = part.pad(found)
    return log_probs
