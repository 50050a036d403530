"""Text that somebody else wrote, as plain Markdown, and counts in words."""

MARKS = "\\|<*_`[]"


def plain(text: str) -> str:
    """Text in one line with Markdown's special characters escaped: it is no HTML and no link."""
    escaped = " ".join(text.split())
    for mark in MARKS:
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped


def plural(number: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
