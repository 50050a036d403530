"""Prompts that are longer than all text encoders of a pipeline read: what is left out of them."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)

KNOWN = 10_000
"""Prompts that are remembered: a source may be endless."""
SHOWN = 40
"""Characters of a prompt in a message."""


@dataclass(frozen=True)
class PromptReader:
    """What the tokenizers of a pipeline keep of a prompt.

    Attributes:
        components: of the pipeline, by name.
        limit: tokens that its last encoder reads. CLIP's have a limit of their own.
        written: the text that is encoded for a prompt, with a family's template around it.
    """

    components: Mapping[str, Any]
    limit: int
    written: Callable[[str], str]
    known: dict[str, tuple[object, bool]] = field(default_factory=dict)

    def __call__(self, prompt: str) -> tuple[object, bool]:
        """The tokens that are read, and whether each encoder leaves out some."""
        if prompt not in self.known:
            if len(self.known) >= KNOWN:
                self.known.clear()
            read = [
                _read(tokenizer, self.limit, prompt, self.written)
                for name, tokenizer in self.components.items()
                if name.startswith("tokenizer") and tokenizer is not None
            ]
            kept = tuple(tuple(ids) for ids, _ in read)
            self.known[prompt] = kept, bool(read) and all(is_cut for _, is_cut in read)
        return self.known[prompt]

    def share(self, prompts: Sequence[str]) -> float:
        """The share of prompts that are cut."""
        return sum(self(prompt)[1] for prompt in prompts) / max(len(prompts), 1)

    def report(self, prompts: Sequence[str]) -> None:
        """Say how many of the prompts are cut, and how many are equal after that."""
        distinct = list(dict.fromkeys(map(str, prompts)))
        cut = [prompt for prompt in distinct if self(prompt)[1]]
        if not cut:
            return
        log.warning(
            "%d of %d prompts are longer than the text encoder reads, and are cut: %r...",
            *(len(cut), len(distinct), cut[0][:SHOWN]),
        )
        copies = Counter(self(prompt)[0] for prompt in distinct)
        equal = [prompt for prompt in cut if copies[self(prompt)[0]] > 1]
        if equal:
            log.warning(
                "%d of them are equal to another one up to there, and are one prompt to the"
                " model: %r...",
                *(len(equal), equal[0][:SHOWN]),
            )


def _read(
    tokenizer: Any, limit: int, prompt: str, written: Callable[[str], str]
) -> tuple[list[int], bool]:
    is_clip = type(tokenizer).__name__.startswith("CLIP")
    text, most = (prompt, int(tokenizer.model_max_length)) if is_clip else (written(prompt), limit)
    encode = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
    ids = encode(str(text), truncation=False, verbose=False).input_ids
    # the last token that is read ends the text, wherever it was cut
    return ids[: most - 1], len(ids) > most
