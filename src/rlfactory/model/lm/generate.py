"""Autoregressive sampling: one token a step for all unfinished rows at once, on a KV cache; and
which token completes a stop text, wherever its tokens begin and end.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rlfactory.dynamics.token import Token, TokenStep
from rlfactory.rollout import Tokens

Read = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Runs the network on new tokens: ids `[B, n]`, the attention mask `[B, m]` of all tokens so far
and positions `[B, n]`. Returns the last token's logits `[B, V]` and what the critic reads of it,
`[B, ...]`, and extends its KV cache.
"""
VALUES_AT_ONCE = 16
"""Tokens of a row whose values are computed together: the critic's products are then larger."""
CHECK_EVERY = {"cpu": 1, "cuda": 8}
"""After how many tokens it is checked which responses have ended: a check waits for the device,
and without it up to so many tokens less one are drawn in vain.
"""
SHRINK_AT = 0.75
"""The share of unfinished rows at which the finished ones leave the batch: that copies the cache
of the others.
"""


BROKEN = "\ufffd"
"""What a decoder writes for a part of a character."""


class StopTexts:
    """Texts, none of them empty, that end a response with the token that completes one.

    A text may span tokens, or end inside one, whose rest then stays part of the response. Special
    tokens count as they are written. A text and the token before it span at most `window` tokens:
    each has at least one byte.
    """

    def __init__(self, tokenizer: Any, texts: Sequence[str]) -> None:
        self.tokenizer, self.texts = tokenizer, tuple(texts)
        self.window = 1 + max(len(text.encode()) for text in texts)
        self._last = {text[-1] for text in texts} | {BROKEN}
        # a token by itself may be decoded without the space that it begins with
        self._anchor = tokenizer("a", add_special_tokens=False).input_ids
        self._may_complete: dict[int, bool] = {}

    def completed(self, rows: Tensor) -> Tensor:
        """Whether the last token of each response `[B, n]` completes a text, `[B]`."""
        found = torch.zeros(len(rows), dtype=torch.bool)
        for row, token in enumerate(rows[:, -1].tolist()):
            if self._may(token):
                found[row] = self.is_completed(rows[row, -self.window :].tolist())
        return found.to(rows.device)

    def is_completed(self, ids: Sequence[int]) -> bool:
        """Whether the last token of a response completes a text."""
        if not self._may(ids[-1]):
            return False
        window = [*ids[-self.window :]]
        text, before = self._decode(window), self._decode(window[:-1]).rstrip(BROKEN)
        return any(text.find(t, max(0, len(before) - len(t) + 1)) >= 0 for t in self.texts)

    def first_end(self, ids: Sequence[int]) -> int:
        """The number of tokens up to the first that completes a text; all where none does."""
        ends = (n for n in range(1, len(ids) + 1) if self.is_completed(ids[:n]))
        return next(ends, len(ids))

    def _may(self, token: int) -> bool:
        """Whether a token can be the last of a text; so most tokens cost a look into a table."""
        if token not in self._may_complete:
            start, text = self._decode(self._anchor), self._decode([*self._anchor, token])
            own = text[len(start) :] if text.startswith(start) else BROKEN
            self._may_complete[token] = not self._last.isdisjoint(own)
        return self._may_complete[token]

    def _decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)


@torch.no_grad()
def decode(
    read: Read,
    keep: Callable[[Tensor], None],
    prompt: Tensor,
    prompt_mask: Tensor,
    dynamics: Token,
    uniform: Tensor,
    *,
    stop: Tensor,
    pad: int,
    stop_texts: StopTexts | None = None,
    critic: Callable[[Tensor], Tensor] = lambda states: states,
    positions: Callable[[Tensor], Tensor] | None = None,
) -> Tokens:
    """Sample responses to prompts; log-probabilities and values come from the same passes.

    Args:
        keep: reduces the KV cache to the rows of ascending indices `[b]`: finished rows leave the
            batch, and the loop ends when all have.
        prompt: token ids `[B, P]`, padded on the left; `prompt_mask` marks the real ones.
        uniform: the random numbers `[B, G]` by which tokens are drawn; G is the maximal length.
        stop: ids of the tokens that end a response. A finished row is padded with `pad`.
        stop_texts: texts that end one too; the host then waits for each token.
        critic: values `[n, B]` of n tokens each, from what `read` returned of them, stacked.
        positions: those of all tokens `[B, P + G, ...]`, of which a mask is given; None: one after
            another.
    """
    width, most = prompt.shape[1], uniform.shape[1]
    drawn = _Responses(prompt, uniform, pad, critic)
    check_every = CHECK_EVERY.get(prompt.device.type, CHECK_EVERY["cuda"])
    # of the rows in the batch
    ids, noise = prompt, uniform
    attention = torch.cat([prompt_mask, torch.ones_like(drawn.mask)], dim=1)
    places = (positions or positions_of)(attention)
    for t in range(most):
        columns = slice(width + t - ids.shape[1], width + t)
        logits, state = read(ids, attention[:, : width + t], places[:, columns])
        step = dynamics.step(logits, noise=noise[:, t])
        drawn.write(t, step, state)
        ids = step.next[:, None]
        if t < dynamics.stop_after:
            continue
        drawn.ended = drawn.ended | (ids == stop).any(1)
        if stop_texts is not None:
            last = drawn.response[drawn.rows, : t + 1][:, -stop_texts.window :]
            drawn.ended = drawn.ended | stop_texts.completed(last)
        if (t + 1) % check_every or t + 1 == most:
            continue
        running = (~drawn.ended).nonzero()[:, 0]
        if not len(running):
            break
        if len(running) <= SHRINK_AT * len(ids):
            drawn.keep(running, t + 1)
            keep(running)
            ids, attention, noise, places = (
                tensor[running] for tensor in (ids, attention, noise, places)
            )
    return drawn.finished(prompt, prompt_mask, t + 1)


class _Responses:
    """The tokens that are drawn of all rows; finished ones still run, on padding, until they leave
    the batch. `rows` are those in the batch, and `ended` says which of these have ended.
    """

    def __init__(
        self, prompt: Tensor, uniform: Tensor, pad: int, critic: Callable[[Tensor], Tensor]
    ) -> None:
        device, self._pad, self._critic = prompt.device, pad, critic
        self.log_prob, self.value = torch.zeros_like(uniform), torch.zeros_like(uniform)
        self.response = torch.full(uniform.shape, pad, device=device)
        self.mask = torch.zeros(uniform.shape, dtype=torch.bool, device=device)
        self._all_ended = torch.zeros(len(prompt), dtype=torch.bool, device=device)
        self.rows, self.ended = torch.arange(len(prompt), device=device), self._all_ended.clone()
        self._states: list[Tensor] = []

    def write(self, t: int, step: TokenStep, state: Tensor) -> None:
        """Write the tokens of column `t`, and from time to time the values of the last ones."""
        rows, ended = self.rows, self.ended
        self.mask[rows, t] = ~ended
        self.response[rows, t] = torch.where(ended, self._pad, step.next)
        self.log_prob[rows, t] = step.log_prob.masked_fill(ended, 0.0)
        self._states.append(state)
        if len(self._states) == VALUES_AT_ONCE:
            self._write_values(t + 1)

    def _write_values(self, end: int) -> None:
        """Write those of the tokens since the last call, which end before column `end`."""
        if self._states:
            columns = slice(end - len(self._states), end)
            values = self._critic(torch.stack(self._states)).T.to(self.value.dtype)
            self.value[self.rows, columns] = values * self.mask[self.rows, columns]
            self._states.clear()

    def keep(self, running: Tensor, end: int) -> None:
        """Let all rows of the batch but `running` leave it, which have `end` tokens."""
        self._write_values(end)
        self._all_ended[self.rows] = self.ended
        self.rows, self.ended = self.rows[running], self.ended[running]

    def finished(self, prompt: Tensor, prompt_mask: Tensor, end: int) -> Tokens:
        """All responses, of at most `end` tokens."""
        self._write_values(end)
        self._all_ended[self.rows] = self.ended
        drawn = (self.response, self.mask, self._all_ended, self.log_prob, self.value)
        return Tokens(prompt, prompt_mask, *drawn)


def positions_of(mask: Tensor) -> Tensor:
    """Position ids `[B, L]` of the tokens that `mask` marks as real, counted from 0."""
    return (mask.long().cumsum(1) - 1).clamp(min=0)
