"""The split of prompts into those to train on and those held out for evaluation."""

import unicodedata
from collections.abc import Hashable, Iterable
from hashlib import sha256
from itertools import chain
from math import ceil

FEWEST = 4
"""The smallest held-out set; a share that gives fewer prompts holds none out."""


def held_out_count(distinct: int, share: float) -> int:
    """How many of so many different prompts a share holds out; 0 if that is below FEWEST."""
    # rounded first: in floats 0.07 * 100 is slightly more than 7
    count = ceil(round(share * distinct, 6))
    return count if count >= FEWEST else 0


def sameness(text: str) -> Hashable:
    """A text that equal prompts have in common: they differ in upper and lower case, in
    white space, or in how Unicode writes their characters (NFC). Prompts with other pictures, their
    `source`, are not the same.
    """
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return " ".join(folded.split()), getattr(text, "source", None)


def held_out_texts(texts: Iterable[str], share: float) -> frozenset[str]:
    """The texts that a share holds out.

    They are those with the lowest SHA-256 hashes, so that the same texts are on the same side and
    most stay there when the list grows. Where several are the same, the lowest of them counts.
    """
    same: dict[Hashable, list[str]] = {}
    for text in dict.fromkeys(texts):
        same.setdefault(sameness(text), []).append(text)
    count = held_out_count(len(same), share)
    lowest = sorted(same.values(), key=lambda t: min(sha256(s.encode()).digest() for s in t))
    return frozenset(chain.from_iterable(lowest[:count]))


def is_held_out(text: str) -> bool:
    """Whether a text is in the quarter that is held out from training, by its SHA-256 hash."""
    return sha256(text.encode()).digest()[0] % 4 == 0
