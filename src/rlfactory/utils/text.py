"""Text that somebody else wrote, as plain Markdown; its repetitions; counts in words; text typed in
a shell.
"""

import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rlfactory.utils.console import printable

TYPED = {r"\n": "\n", r"\r": "\r", r"\t": "\t", r"\\": "\\"}
"""What stands in a typed text for what can't be typed in a shell."""
MARKS = "\\|<*_`[]"


def plain(text: str) -> str:
    """Text in one line with Markdown's special characters escaped: it is no HTML and no link, and
    what shows the file gets no control characters.
    """
    escaped = printable(" ".join(text.split()))
    for mark in MARKS:
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped


def fenced(code: str, least: int = 1) -> str:
    """A code in Markdown, between more backticks than it has in a row itself."""
    mark = "`" * max(least, 1 + max(map(len, re.findall("`+", code)), default=0))
    return f"{mark}{code}{mark}"


def typed_path(word: str) -> Path:
    """A path as it was typed, with the home folder for `~`; absolute where it would begin like a
    flag (`./-run` too: a Path drops `./`), so that commands can be suggested with it.
    """
    path = Path(word).expanduser()
    return path.absolute() if str(path).startswith("-") else path


def is_override(word: str) -> bool:
    """Whether a word is KEY=VALUE, and not the path of something that is there."""
    return "=" in word and not os.path.exists(typed_path(word))


def table_lines(sides: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table; `sides` has `l` or `r` for each column's alignment."""
    first, *rest = (f"| {' | '.join(cells)} |" for cells in [heads, *rows])
    marks = "|".join("---" if side == "l" else "---:" for side in sides)
    return [first, f"|{marks}|", *rest]


def distinct(texts: Iterable[str], n: int) -> float:
    """Distinct-n: the share of distinct n-grams of words, in lower case (arXiv 1510.03055); NaN
    where none are.
    """
    grams = [
        tuple(words[i : i + n])
        for words in (text.lower().split() for text in texts)
        for i in range(len(words) - n + 1)
    ]
    return len(set(grams)) / len(grams) if grams else math.nan


def repeated_share(text: str, n: int) -> float:
    """The share of a text's word n-grams that occurred earlier in it, in [0, 1)."""
    share = distinct([text], n)
    return 0.0 if math.isnan(share) else 1 - share


def plural(number: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def typed_text(text: str) -> str:
    r"""A stop text with `\n`, `\r`, `\t` and `\\` read as in Python's strings."""
    return re.sub(r"\\[nrt\\]", lambda found: TYPED[found[0]], text)
