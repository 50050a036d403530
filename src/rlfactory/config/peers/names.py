"""Names of other libraries for the options of this one: names.yaml, for messages, docs and imports.

docs/reference/names.md prints it. Libraries that use a name for the same thing share its row.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from rlfactory.config.problems import override_key
from rlfactory.utils.data_files import read_yaml
from rlfactory.utils.dotted_keys import value_at

Words = tuple[str, ...]
OTHER = re.compile(r"\{([a-z][\w.]*)\}")
"""The value of another name, in a word."""


@dataclass(frozen=True)
class Name:
    """A name that other libraries use for an option.

    Attributes:
        name: as it is typed there.
        peers: the libraries that use it.
        words: what to type here, `{value}` for the typed value and `{NAME}` for that of another
            name; alternatives in order of preference, with ` | ` between them; empty where nothing
            is typed.
        caveat: what differs, or why nothing is typed.
        bases: words that bring the key where it is not there, in order of preference.
        choices: what to type for particular values, in lower case, in place of `words`.
        by: a function of `values` on the typed value and the configuration. It returns a value to
            type, or all that is to be typed, most fitting first; `words` then only describes it.
        when: a key of the configuration that must have a value.
    """

    name: str
    peers: tuple[str, ...]
    words: str
    caveat: str = ""
    bases: tuple[str, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)
    by: str = ""
    when: str = ""

    def applies(self, config: Mapping[str, Any]) -> bool:
        """Whether the name has this meaning in a configuration."""
        return not self.when or value_at(config, self.when) is not None

    def meaning(self, value: str = "") -> str:
        """The words to type, for a reader: for a value, or for any."""
        if words := self.choices.get(value.lower()):
            return words.partition(" | ")[0]
        words_of_any = self.words.split(" | ")[-1].split()
        # without the values that are put in; where they are a part of a value, its key
        keys = [override_key(word) if "{" in word else word for word in words_of_any]
        shown = {" ".join(keys): None} if keys else {}
        for words in self.choices.values():
            if words.partition("=")[0] not in shown:  # a key alone says it of all values
                shown[words.partition(" | ")[0] or "nothing"] = None
        return " or ".join(shown)


def filled(words: Words, typed: Sequence[str]) -> Words | None:
    """Words with the values of other names; None where one of them is not typed."""
    given = {override_key(word): word.partition("=")[2] for word in typed}
    if any(name not in given for word in words for name in OTHER.findall(word)):
        return None
    return tuple(OTHER.sub(lambda found: given[found[1]], word) for word in words)


@cache
def _content() -> dict[str, Any]:
    """The file, whose values are texts alone: `no` and `true` are names."""
    return read_yaml(Path(__file__).with_name("names.yaml"), texts_only=True)


@cache
def tables() -> Mapping[str, tuple[Name, ...]]:
    """The rows by subject."""
    libraries, rows = _content()["libraries"], dict[str, tuple[Name, ...]]()
    for subject, entries in _content().items():
        if subject in ("libraries", "nearest", "options"):
            continue
        rows[subject] = ()
        for name, codes, entry in ((*pair, e) for e in entries for pair in e["there"].items()):
            peers = [peer for code in codes.split() for peer in libraries.get(code, [code])]
            rows[subject] += (row_of(name, entry, tuple(dict.fromkeys(peers))),)
    return rows


def row_of(name: str, entry: Mapping[str, Any], peers: tuple[str, ...] = ()) -> Name:
    """A row as a file has it."""
    ours = entry.get("ours", "")
    words = ours if isinstance(ours, str) else " | ".join(ours)
    theirs = {"note": "caveat", "choices": "choices", "by": "by", "when": "when"}
    given = {name: entry[key] for key, name in theirs.items() if key in entry}
    return Name(name, peers, words, bases=tuple(entry.get("with", ())), **given)


@cache
def _by_name() -> Mapping[str, list[Name]]:
    found: dict[str, list[Name]] = {}
    for row in (row for rows in tables().values() for row in rows):
        found.setdefault(row.name, []).append(row)
    return found


def find(key: str, config: Mapping[str, Any], *peers: str) -> Name | None:
    """The row of a name, or of the longest end of a dotted one, by its meaning in `config`.

    Args:
        key: the name.
        config: a configuration.
        peers: the libraries that count; by default all.
    """
    parts = key.split(".")
    patterns = [name for name in _by_name() if "*" in name]
    for start in range(len(parts)):
        end = ".".join(parts[start:])
        # a pattern is of one component, or of all below its beginning
        fitting = [n for n in patterns if n.endswith(".*") or start == len(parts) - 1]
        for name in [end, *(name for name in fitting if fnmatchcase(end, name))]:
            for row in _by_name().get(name, []):
                if (not peers or {*peers} & {*row.peers}) and row.applies(config):
                    return row
    return None


def rows_of(*peers: str) -> Iterator[Name]:
    """The rows of the names that any of these libraries uses."""
    return (row for rows in tables().values() for row in rows if {*peers} & {*row.peers})


def nearest(key: str) -> str | None:
    """The group or key that has options of the kind of an unknown one, by its words."""
    words = key.lower().replace(".", "_").replace("-", "_").split("_")
    groups = {word: group for group, known in _content()["nearest"].items() for word in known}
    return next((groups[word] for word in reversed(words) if word in groups), None)


def option_words(group: str, name: str) -> Words:
    """The words to type for an option by another name; the name itself where it has none."""
    spelled = name.lower().replace("-", "_")
    known = _content()["options"].get(group, {})
    first, *more = known[spelled].split() if spelled in known else [spelled]
    return (first if "=" in first else f"{group}={first}", *more)


def our_option(group: str, name: str) -> str:
    """An option by another name; the name in lower case where it has none."""
    return option_words(group, name)[0].partition("=")[2]
