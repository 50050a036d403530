"""A name that other libraries use for an option of this one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlfactory.config.dotted_keys import value_at
from rlfactory.config.peers import values
from rlfactory.config.problems import override_key

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

    def candidates(self, value: str, config: Mapping[str, Any]) -> list[Words]:
        """What to type for a value, most fitting first; nothing for a value that has no like."""
        found = getattr(values, self.by)(value, config) if self.by else value
        if not isinstance(found, str):
            return list(found)
        if not self.words and self.choices and found.lower() not in self.choices:
            return []
        made = []
        for alternative in self.choices.get(found.lower(), self.words).split(" | "):
            words = tuple(word.replace("{value}", found) for word in alternative.split())
            own = {override_key(word) for word in words}
            bases = [[w for w in base.split() if override_key(w) not in own] for base in self.bases]
            made += [tuple([*base, *words]) for base in ([], *bases)]
        return made

    def meaning(self, value: str = "") -> str:
        """What to type, for a reader: for a value, or for any."""
        if words := self.choices.get(value.lower()):
            return words.partition(" | ")[0]
        keys = [_unfilled(word) for word in self.words.split(" | ")[-1].split()]
        shown = {" ".join(keys): None} if keys else {}
        for words in self.choices.values():
            if words.partition("=")[0] not in shown:  # a key alone says it of all values
                shown[words.partition(" | ")[0] or "nothing"] = None
        return " or ".join(shown)


def _unfilled(word: str) -> str:
    """A word without the values that are put into it; its key where they are a part of one."""
    return override_key(word) if "{" in word else word


def filled(words: Words, typed: Sequence[str]) -> Words | None:
    """Words with the values of other names; None where one of them is not typed."""
    given = {override_key(word): word.partition("=")[2] for word in typed}
    if any(name not in given for word in words for name in OTHER.findall(word)):
        return None
    return tuple(OTHER.sub(lambda found: given[found[1]], word) for word in words)
