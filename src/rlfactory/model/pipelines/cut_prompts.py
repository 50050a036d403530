"""Prompts that are longer than all text encoders of a pipeline read: what is left out of them."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)

KNOWN, SHOWN = 10_000, 40
"""Prompts that are remembered, as a source may be endless; characters in a message."""


@dataclass(frozen=True)
class PromptReader:
    """What the tokenizers of a pipeline keep of a prompt.

    Attributes:
        tokenizers: of the pipeline.
        limit: tokens that its last encoder reads. CLIP's have a limit of their own.
        written: the text that is encoded for a prompt, with a family's template around it.
    """

    tokenizers: Sequence[Any]
    limit: int
    written: Callable[[str], str]
    known: dict[str, tuple[object, bool]] = field(default_factory=dict)

    def __call__(self, prompt: str) -> tuple[object, bool]:
        """The tokens that are read, and whether each encoder leaves out some."""
        if prompt not in self.known:
            if len(self.known) >= KNOWN:
                self.known.clear()
            read = [self._read(tokenizer, prompt) for tokenizer in self.tokenizers]
            is_cut = bool(read) and all(len(ids) >= most for ids, most in read)
            # the last token that is read ends the text, wherever it was cut
            self.known[prompt] = tuple(tuple(ids[: most - 2]) for ids, most in read), is_cut
        return self.known[prompt]

    def _read(self, tokenizer: Any, prompt: str) -> tuple[list[int], int]:
        """The tokens of a prompt, and the least number of them that is too large."""
        is_clip = type(tokenizer).__name__.startswith("CLIP")
        most = int(tokenizer.model_max_length) if is_clip else self.limit
        encode = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
        text = str(prompt if is_clip else self.written(prompt))
        return encode(text, truncation=False, verbose=False).input_ids, most + 1

    def share(self, prompts: Sequence[str]) -> float:
        """The share of prompts that are cut."""
        return sum(self(prompt)[1] for prompt in prompts) / max(len(prompts), 1)

    def report(self, prompts: Sequence[str]) -> None:
        """Say how many of the prompts are cut, and how many are equal after that."""
        distinct = list(dict.fromkeys(map(str, prompts)))
        cut = [prompt for prompt in distinct if self(prompt)[1]]
        if not cut:
            return
        copies = Counter(self(prompt)[0] for prompt in distinct)
        equal = sum(copies[self(prompt)[0]] > 1 for prompt in cut)
        log.warning(
            "%d of %d prompts are longer than the text encoder reads, and are cut, as %r...%s",
            *(len(cut), len(distinct), cut[0][:SHOWN]),
            f"; {equal} of them are equal to another one up to there" if equal else "",
        )
