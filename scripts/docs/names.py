"""The tables of docs/reference/names.md: what other libraries call the options of this one."""

from collections.abc import Iterable

from rlfactory.config.peers.names import Name
from rlfactory.config.peers.names import tables as subjects


def table(rows: Iterable[Name], *, peers: bool = True) -> str:
    """A row a name: libraries, what to type here, what differs."""
    heads = ["there", *(["library"] if peers else []), "here", "what differs"]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for row in rows:
        libraries = [", ".join(row.peers)] if peers else []
        lines.append(_line([f"`{row.name}`", *libraries, here(row), row.caveat]))
    return "\n".join(lines)


def here(row: Name) -> str:
    """What to type for a name."""
    parts = [f"`{words}`" for words in row.meaning().split(" or ") if words != "nothing"]
    parts = [part for part in parts if part != "``"]
    if row.bases and parts:
        parts.append(f"a key of `{row.bases[0]}`, for example")
    return ", ".join(parts) or "–"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def tables() -> str:
    """A table for each subject."""
    return "\n\n".join(f"## {title}\n\n{table(rows)}" for title, rows in subjects().items())
