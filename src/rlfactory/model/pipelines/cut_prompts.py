"""Prompts that are longer than all text encoders of a pipeline read: what is left out of them."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

log = logging.getLogger(__name__)

Read = Callable[[str], tuple[object, bool]]
"""The tokens of a prompt that are read, and whether each encoder leaves out some."""


def prompt_reader(tokenizers: Sequence[Any], limit: int, written: Callable[[str], str]) -> Read:
    """What the tokenizers of a pipeline keep of a prompt.

    Args:
        limit: tokens that its last encoder reads. CLIP's have a limit of their own.
        written: the text that is encoded for a prompt, with a family's template around it.
    """

    def ids_and_limit(tokenizer: Any, prompt: str) -> tuple[list[int], int]:
        is_clip = type(tokenizer).__name__.startswith("CLIP")
        encode = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
        text = str(prompt if is_clip else written(prompt))
        ids = encode(text, truncation=False, verbose=False).input_ids
        return ids, int(tokenizer.model_max_length) if is_clip else limit

    @lru_cache(maxsize=10_000)  # a source may be endless
    def read(prompt: str) -> tuple[object, bool]:
        rows = [ids_and_limit(tokenizer, prompt) for tokenizer in tokenizers]
        # the last token that is read ends the text, wherever it was cut
        kept = tuple(tuple(ids[: most - 1]) for ids, most in rows)
        return kept, bool(rows) and all(len(ids) > most for ids, most in rows)

    return read


def report_cut(read: Read, prompts: Sequence[str]) -> None:
    """Say how many of the prompts are cut, and how many are equal after that."""
    distinct = list(dict.fromkeys(map(str, prompts)))
    cut = [prompt for prompt in distinct if read(prompt)[1]]
    if not cut:
        return
    copies = Counter(read(prompt)[0] for prompt in distinct)
    equal = sum(copies[read(prompt)[0]] > 1 for prompt in cut)
    log.warning(
        "%d of %d prompts are longer than the text encoder reads, and are cut, as %r...%s",
        *(len(cut), len(distinct), cut[0][:40]),
        f"; {equal} of them are equal to another one up to there" if equal else "",
    )
