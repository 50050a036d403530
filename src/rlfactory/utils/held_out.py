"""The split of a list of prompts into those to train on and those held out for evaluation."""

from collections.abc import Iterable
from hashlib import sha256
from math import ceil

FEWEST = 4
"""The smallest held-out set; a share that gives fewer prompts holds none out."""


def held_out_count(distinct: int, share: float) -> int:
    """How many of so many different prompts a share holds out; 0 if that is below FEWEST."""
    # rounded first: in floats 0.07 * 100 is slightly more than 7
    count = ceil(round(share * distinct, 6))
    return count if count >= FEWEST else 0


def held_out_texts(texts: Iterable[str], share: float) -> frozenset[str]:
    """The texts that a share holds out.

    They are those with the lowest SHA-256 hashes, so that equal texts are on the same side and most
    stay there when the list grows.
    """
    distinct = dict.fromkeys(texts)
    count = held_out_count(len(distinct), share)
    return frozenset(sorted(distinct, key=lambda text: sha256(text.encode()).digest())[:count])
