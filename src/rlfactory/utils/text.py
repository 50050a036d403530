"""Text that somebody else wrote, as plain Markdown, and counts in words."""

from collections.abc import Iterable, Sequence

MARKS = "\\|<*_`[]"


def plain(text: str) -> str:
    """Text in one line with Markdown's special characters escaped: it is no HTML and no link."""
    escaped = " ".join(text.split())
    for mark in MARKS:
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped


def table_lines(sides: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table; `sides` has `l` or `r` for each column's alignment."""
    first, *rest = (f"| {' | '.join(cells)} |" for cells in [heads, *rows])
    marks = "|".join("---" if side == "l" else "---:" for side in sides)
    return [first, f"|{marks}|", *rest]


def plural(number: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
