"""What other libraries call the options of this one: names.yaml, for messages, docs and imports.

docs/reference/names.md prints it. Libraries that use a name for the same thing share its row.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from rlfactory.config.peers.name import Name
from rlfactory.config.peers.names_file import content


@cache
def tables() -> Mapping[str, tuple[Name, ...]]:
    """The rows by subject."""
    libraries, others = content()["libraries"], ("libraries", "nearest", "options")
    return {
        subject: tuple(row for entry in entries for row in _rows(entry, libraries))
        for subject, entries in content().items()
        if subject not in others
    }


def _rows(entry: Mapping[str, Any], libraries: Mapping[str, list[str]]) -> Iterator[Name]:
    ours = entry.get("ours", "")
    for name, codes in entry["there"].items():
        peers = [peer for code in codes.split() for peer in libraries.get(code, [code])]
        yield Name(
            name,
            tuple(dict.fromkeys(peers)),
            ours if isinstance(ours, str) else " | ".join(ours),
            entry.get("note", ""),
            tuple(entry.get("with", ())),
            entry.get("choices", {}),
            entry.get("by", ""),
            entry.get("when", ""),
        )


@cache
def _by_name() -> Mapping[str, list[Name]]:
    found: dict[str, list[Name]] = {}
    for rows in tables().values():
        for row in rows:
            found.setdefault(row.name, []).append(row)
    return found


@cache
def _patterns() -> list[str]:
    return [name for name in _by_name() if "*" in name]


def find(key: str, config: Mapping[str, Any], *peers: str) -> Name | None:
    """The row of a name, or of the longest end of a dotted one, by its meaning in `config`.

    Args:
        key: the name.
        config: a configuration.
        peers: the libraries that count; by default all.
    """
    parts = key.split(".")
    for start in range(len(parts)):
        end = ".".join(parts[start:])
        # a pattern is of one component, or of all below its beginning
        patterns = [name for name in _patterns() if name.endswith(".*") or start == len(parts) - 1]
        patterns = [name for name in patterns if fnmatchcase(end, name)]
        for name in [end, *patterns]:
            rows = _by_name().get(name, [])
            rows = [row for row in rows if not peers or {*peers} & {*row.peers}]
            if (row := next((row for row in rows if row.applies(config)), None)) is not None:
                return row
    return None


def rows_of(*peers: str) -> Iterator[Name]:
    """The rows of the names that any of these libraries uses."""
    for rows in tables().values():
        yield from (row for row in rows if {*peers} & {*row.peers})


def nearest(key: str) -> str | None:
    """The group or key that has options of the kind of an unknown one, by its words."""
    words = key.lower().replace(".", "_").replace("-", "_").split("_")
    groups = {word: group for group, known in content()["nearest"].items() for word in known}
    return next((groups[word] for word in reversed(words) if word in groups), None)
