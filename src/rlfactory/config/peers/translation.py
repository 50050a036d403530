"""A configuration file of another library, translated key by key into words of the command."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlfactory.config.peers.name import filled
from rlfactory.config.peers.names import find
from rlfactory.config.problems import PlanError, Problem, override_key
from rlfactory.config.words import typed_value

UNKNOWN, NONE = "unknown here", "no counterpart"
LONGEST = 80
"""Characters of a value without a counterpart that are shown."""
SAME = ("seed", "group_size", "max_grad_norm")
"""Names that are the same here."""


@dataclass
class Translation:
    """What a configuration becomes.

    Attributes:
        peer: the library that the file is for.
        words: what to type, by key.
        notes: what differs though it was translated.
        dropped: keys without a counterpart, with their values and the reason.
    """

    peer: str
    words: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    dropped: dict[str, tuple[Any, str]] = field(default_factory=dict)

    def set(self, key: str, value: object) -> None:
        """Set one of our keys."""
        self.words[key] = f"{key}={value if isinstance(value, str) else typed_value(value)}"

    def type(self, *words: str) -> None:
        """Add words; of two of the same key the last one counts."""
        self.words.update({override_key(word): word for word in words})

    def sizes(self) -> dict[str, Any]:
        """The numbers of the root that counts of other units are converted by, as far as set."""
        sizes = ["iterations", "epochs", "updates_per_iteration"]
        sizes += ["prompts_per_iteration", "group_size"]
        typed = {key: self.words[key] for key in sizes if key in self.words}
        length = self.words.get("dynamics.length", "=0").partition("=")[2]
        known: dict[str, Any] = {"epochs": 1, "updates_per_iteration": 1}
        known["dynamics"] = {"length": int(length)} if length != "0" else {}
        return known | {key: int(word.partition("=")[2]) for key, word in typed.items()}

    def drop(self, key: str, value: object, reason: str) -> None:
        """Record a key of the file that has no counterpart."""
        self.dropped[key] = (value, reason)

    def command(self) -> list[str]:
        """The words of the command, choices of options first."""
        return sorted(self.words.values(), key=lambda word: "." in override_key(word))

    def text(self, source: str) -> str:
        """The command, and as comments what it leaves out."""
        lines = [f"# {self.peer}: {source}", "rlfactory " + _folded(self.command())]
        if self.notes:
            lines += ["", "# what differs:", *(f"#   {note}" for note in self.notes)]
        if self.dropped:
            width = max(map(len, self.dropped))
            lines += ["", "# without a counterpart:"]
            for key, (value, reason) in self.dropped.items():
                shown = " ".join(typed_value(value).split())
                lines.append(f"#   {key:<{width}} = {shown[:LONGEST]}  ({reason})")
        return "\n".join(lines)


def _folded(words: list[str], width: int = 96) -> str:
    """Words of a shell command on lines that a backslash continues."""
    lines, line = [], ""
    for word in map(shlex.quote, words):
        if line and len(line) + len(word) > width:
            lines.append(line)
            line = ""
        line += f" {word}" if line else word
    return " \\\n  ".join([*lines, line])


class Fields:
    """The keys of a foreign configuration, taken one by one; what is left was not understood."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        """Flatten a configuration to dotted keys."""
        self.left: dict[str, Any] = dict(_flat(content, ""))

    def take(self, key: str, default: Any = None) -> Any:
        """The value of a key, which then counts as understood; `default` if it is not there."""
        return self.left.pop(key, default)

    def __contains__(self, key: str) -> bool:
        return key in self.left


def _flat(content: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping) and value and prefix.count(".") < 2:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def choice(fields: Fields, key: str, known: Mapping[str, str]) -> str:
    """The option for a value; PlanError where it is none of those known."""
    value = str(fields.take(key)).lower()
    if value not in known:
        message = f"is {value}; known are {', '.join(known)}"
        raise PlanError([Problem(key, message, "rlfactory list")])
    return known[value]


def translate_rest(
    fields: Fields, into: Translation, peers: tuple[str, ...], nothing: Mapping[str, str]
) -> None:
    """Translate what is left by the table of names, and list what has no counterpart.

    Args:
        fields: the configuration.
        into: receives the words.
        peers: the libraries whose names count.
        nothing: keys without a counterpart, by the end of their dotted names, with the reason.
    """
    given = [f"{key}={typed_value(value)}" for key, value in fields.left.items()]
    for key, value in fields.left.items():
        if value == "" or value == {}:
            continue
        name = key.rpartition(".")[2]
        reason = nothing.get(key) or nothing.get(name)
        row = find(key, into.sizes(), *peers)
        if name in SAME and value is not None:
            into.set(name, value)
            continue
        if reason is None and row is not None and value is not None:
            if row.choices and isinstance(value, list) and len(value) == 1:
                value = value[0]
            found = row.candidates(typed_value(value), into.sizes())
            if words := next((w for c in found if (w := filled(c, given))), ()):
                into.type(*(w for w in words if not w.startswith("model=tiny_")))
                continue
            reason = row.caveat or NONE
        if value is not None or reason is not None:
            into.drop(key, value, reason or UNKNOWN)
