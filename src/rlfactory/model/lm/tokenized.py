"""A language model's side of tokens: prompts, completions and ends of responses as token ids."""

import logging
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.dynamics.token import Token
from rlfactory.model.lm.generate import StopTexts
from rlfactory.model.lm.prompt_format import PromptFormat
from rlfactory.model.text_base import TextModel
from rlfactory.prompts.ops.chat import THOUGHTS_END
from rlfactory.rollout import Tokens
from rlfactory.utils.errors import ModelError
from rlfactory.utils.pytree import to_device

LongPrompts = Literal["refuse", "drop", "cut"]
IMPOSSIBLE = -1e9
"""The logit of an id that no token has. It is finite, so that its share of entropy and divergence
is exactly 0, and not NaN."""

log = logging.getLogger(__name__)


class TokenizedModel(TextModel):
    """The part of a text model that needs its tokenizer only.

    Args:
        device: where token ids are needed.
        prompts: how the model is given prompts; it has the tokenizer.
        end_ids: the tokens that end a response.
        context: the most tokens of a prompt with its response.
        vocabulary: the number of logits of a token.
        rows: the tokens that the embedding has.
        max_prompt_length: the most tokens of a prompt; None: as many as leave room.
        long_prompts: what becomes of longer ones.

    Attributes:
        unused_ids: ids that no token has: embeddings are often padded to a round number.
    """

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

    def check_lengths(self, prompts: Sequence[str], length: int) -> frozenset[str]:
        """See the contract; the message quotes the longest prompt."""
        room = min(self.context - length, self.max_prompt_length or self.context)
        if self.long_prompts == "cut" and room > 1:
            self._room = room
        rows = dict(zip(prompts, self._prompt_ids(prompts), strict=True))
        long = [prompt for prompt, row in rows.items() if len(row) > room]
        chats = [prompt for prompt in long if self.prompts.messages(prompt) is not None]
        if not long or self.long_prompts == "drop":
            self._left_out |= {*long}
            return frozenset(long)
        if self._room is not None and not chats:
            log.warning("%d prompts of more than %d tokens are cut from the left", len(long), room)
            return frozenset()
        longest = max(long, key=lambda prompt: len(rows[prompt]))
        most = len(rows[longest])
        spare = self.context - most
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
        """Token ids of prompts: conversations by the chat template; texts after an end of text
        where documents begin so in pretraining.
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
        given = self.prompts.prompt_ids(prompts)
        rows = self.prompts.completion_ids(prompts, texts, given)
        require_rows(self.tokenizer, rows, self.rows)
        shown = self.with_pictures(prompts, given)
        room = [self.context - len(self._fitting(ids)) for ids in shown]
        limits = room if length is None else [min(length, own) for own in room]
        return padded_completions(rows, limits, self.tokenizer.pad_token_id)

    def thought_lengths(self, prompts: Sequence[str], texts: Sequence[str]) -> list[int]:
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
        (ids,) = self.prompts.prompt_ids([prompt])
        return str(self.tokenizer.decode(ids))

    def as_learned(self, prompt: str, text: str, length: int | None = None) -> str:
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
        if dynamics.stop_match != "text" or not dynamics.stop:
            return None
        return self._texts_of(tuple(dynamics.stop))

    def _texts_of(self, texts: tuple[str, ...]) -> StopTexts:
        if texts not in self._stop_texts:  # it keeps what it learned of each token
            self._stop_texts[texts] = StopTexts(self.tokenizer, texts)
        return self._stop_texts[texts]

    def texts(self, tokens: Tokens) -> list[str]:
        """Decoded up to the token that ends them, which stays unless it is a special token."""
        ids, lengths = tokens.response.tolist(), tokens.response_lengths.tolist()
        rows = [row[:length] for row, length in zip(ids, lengths, strict=True)]
        return self.tokenizer.batch_decode(rows, skip_special_tokens=True)


def require_rows(tokenizer: Any, texts: Sequence[Sequence[int]], rows: int) -> None:
    """ModelError, which names the token, unless a model of `rows` rows has one for each."""
    if (most := max((max(ids, default=0) for ids in texts), default=0)) < rows:
        return
    token = tokenizer.convert_ids_to_tokens(most)
    raise ModelError(
        f"a text, or what the chat template adds to it, has {token!r}, token {most} of the"
        f" tokenizer, and the model's embedding has {rows} rows; add rows for it in transformers"
        " by resize_token_embeddings, or leave it out"
    )


def padded_prompts(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Token ids `[B, P]`, padded on the left, and the mask of the real ones, on the CPU."""
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(row)) + [*row] for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(width) >= width - lengths[:, None]


def padded_completions(
    rows: Sequence[Sequence[int]], limits: Sequence[int], pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Completions that end with an end token, each cut after its limit of tokens, on the CPU: token
    ids `[B, G]`, padded on the right; the mask of the real ones; and `[B]`, whether the end is
    among them.
    """
    kept = [[*row[:limit]] for row, limit in zip(rows, limits, strict=True)]
    width = max(map(len, kept))
    padded = torch.tensor([row + [pad] * (width - len(row)) for row in kept])
    lengths = torch.tensor([len(row) for row in kept])
    whole = torch.tensor([len(row) for row in rows]) == lengths
    return padded, torch.arange(width) < lengths[:, None], whole
