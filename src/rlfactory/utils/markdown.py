"""Text that somebody else wrote, in Markdown."""

MARKS = "\\|<*_`[]"


def plain(text: str) -> str:
    """Text in one line with Markdown's special characters escaped: it is no HTML and no link."""
    escaped = " ".join(text.split())
    for mark in MARKS:
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped
