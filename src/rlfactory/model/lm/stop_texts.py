"""Stop texts: which token of a response completes one, wherever its tokens begin and end."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

BROKEN = "\ufffd"
"""What a decoder writes for a part of a character."""


class StopTexts:
    """Texts that end a response with the token that completes one.

    A text may span tokens, or end inside one, whose rest then stays part of the response. Special
    tokens count as they are written.

    Args:
        tokenizer: of the model.
        texts: none of them empty.

    Attributes:
        window: the most tokens that a text and the token before it can span: each has at least one
            byte.
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
