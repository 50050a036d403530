"""The command that a configuration of another library becomes, and what it leaves out."""

import shlex
from dataclasses import dataclass, field
from typing import Any

from rlfactory.config.problems import override_key
from rlfactory.config.words import typed_value

FOREMOST = ("experiment", "algo", "model", "recipe")
LONGEST = 80
"""Characters of a value without a counterpart that are shown."""


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

    def drop(self, key: str, value: object, reason: str) -> None:
        """Record a key of the file that has no counterpart."""
        self.dropped[key] = (value, reason)

    def command(self) -> list[str]:
        """The words of the command: choices of options, the foremost first, then their keys."""
        keys = [*FOREMOST, *self.words]
        ordered = sorted(self.words, key=lambda key: ("." in key, keys.index(key)))
        return [self.words[key] for key in ordered]

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
