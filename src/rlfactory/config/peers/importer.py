"""The interpreter of the rows of `libraries/*.yaml`, which translate options into words.

A row may have:

- there: the key, a list of which the first that is given counts, or a pattern; they then count as
  understood, whatever is typed. Without it, the row is of the values of all keys
- if: keys of the file, or of what is typed so far, and what they must be: a value, a list of them,
  true or false, null for absent, ">N", "!=KEY", or "~PATTERN", which finds an absent key empty
- ours, choices, by: as in names.yaml; a choice "!REASON" is dropped
- default: where none of the keys is given
- other: the reason by which values that are no choice are dropped
- let: names and formulas in Python of keys and of names before, which later rows know too; a key
  that is not there is false in `KEY or DEFAULT`; `value` is what the rest of the row reads
- type, untype: words, or the key with whose keys words are taken back; `{KEY}` is a value
- copy: a group of which typed words are typed for another one too
- note, drop, refuse: what is told of the key; `refuse: true` allows the choices alone
- call: a function of computed.py
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from rlfactory.config.peers.names import OTHER, filled, find, row_of
from rlfactory.config.peers.values import candidates, number
from rlfactory.config.problems import PlanError, Problem, override_key
from rlfactory.config.words import typed_value

UNKNOWN, NONE = "unknown here", "no counterpart"
SAME = ("seed", "group_size", "max_grad_norm")
"""Names that are the same here."""
FOREMOST = ("experiment", "algo", "model", "recipe")
LONGEST = 80
"""Characters of a value without a counterpart that are shown."""
FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (abs, float, int, isinstance, len, list, max, min, round, str)
}
"""Functions that formulas may use."""
Row = Mapping[str, Any]


@dataclass
class Translation:
    """The form that a configuration takes here, while it is made and afterwards.

    Attributes:
        peer: the library that the file is for.
        left: its options that are not yet understood.
        given: all of them, with the library and the number of processes.
        calls: functions of `computed.py`, by name.
        words: what to type, by key.
        notes: what differs though it was translated.
        dropped: keys without a counterpart, with their values and the reason.
        named: what formulas give, and the value of the row's key.
    """

    peer: str
    left: dict[str, Any] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    calls: Mapping[str, Any] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    dropped: dict[str, tuple[Any, str]] = field(default_factory=dict)
    named: dict[str, Any] = field(default_factory=dict)

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
        """The command, on lines that a backslash continues, and as comments what it leaves out."""
        lines = [f"# {self.peer}: {source}", f"rlfactory {_folded(self.command())}"]
        if self.notes:
            lines += ["", "# what differs:", *(f"#   {note}" for note in self.notes)]
        if self.dropped:
            width = max(map(len, self.dropped))
            lines += ["", "# without a counterpart:"]
            for key, (value, reason) in self.dropped.items():
                shown = " ".join(typed_value(value).split())
                lines.append(f"#   {key:<{width}} = {shown[:LONGEST]}  ({reason})")
        return "\n".join(lines)

    def take(self, key: str, default: Any = None) -> Any:
        """The value of a key, which then counts as understood; `default` if it is not there."""
        return self.left.pop(key, default)

    def apply(self, row: Row) -> None:
        """Apply a row of a library's file."""
        if not all(self._holds(key, wanted) for key, wanted in row.get("if", {}).items()):
            return
        if "there" not in row:
            self._say(row, "", None)
            return
        names = row["there"] if isinstance(row["there"], list) else [row["there"]]
        keys = [key for name in names for key in [*self.left] if fnmatchcase(key, name)]
        found = {key: self.take(key) for key in keys}
        if not found and "default" in row:
            found = {names[0]: row["default"]}
        if "*" not in names[0]:
            found = dict([(k, v) for k, v in found.items() if v is not None][:1])
        elif "call" in row and found:
            key = names[0].rstrip("*")
            found = {key: found.get(key) or {k[len(key) + 1 :]: v for k, v in found.items()}}
        for key, value in found.items():
            self._say(row, key, value)

    def _say(self, row: Row, key: str, value: Any) -> None:
        """The words of a row on a value."""
        self.named["value"] = value
        for name, formula in row.get("let", {}).items():
            # of a file that ships; what a user's file holds is a value, and never a formula
            known: Any = _Names(self)
            found = eval(str(formula), {"__builtins__": FUNCTIONS}, known)
            self.named[name] = None if isinstance(found, _Names) else found
        value = self.named["value"]
        if "call" in row:
            self.calls[row["call"]](value, self)
        choices = {typed_value(k).strip("'"): words for k, words in row.get("choices", {}).items()}
        typed = typed_value(value)
        chosen = choices.get(typed.strip("'").lower())
        if row.get("refuse"):
            self._refuse(row, key, value, choices)
        elif chosen is not None and chosen.startswith("!"):
            self.drop(key, value, chosen[1:])
        elif chosen is None and "other" in row:
            self.drop(key, value, row["other"])
        elif "ours" in row or "choices" in row:
            named = row_of(key, {**row, "choices": choices})
            # a choice is named without the quotes that a shell needs
            known = typed if chosen is None else typed.strip("'")
            found = candidates(named, known, self.sizes())
            self.type(*(self._filled(word) for word in next(iter(found), ())))
        self.type(*map(self._filled, row.get("type", "").split()))
        for group, other in row.get("copy", {}).items():
            below = [word for word in self.words.values() if word.startswith(f"{group}.")]
            self.type(*(f"{other}{word.removeprefix(group)}" for word in below))
        if "note" in row and chosen is None:
            self.notes.append(self._filled(row["note"]))
        if group := row.get("untype"):
            if "drop" in row:
                self.drop(group, self.words[group].partition("=")[2], row["drop"])
            for typed in [typed for typed in self.words if typed.partition(".")[0] == group]:
                del self.words[typed]
        elif "drop" in row and not (chosen and chosen.startswith("!")):
            self.drop(key, value, row["drop"])

    def _refuse(self, row: Row, key: str, value: Any, choices: Mapping[str, str]) -> None:
        """The choice that a value is; PlanError where there is none, or none may be."""
        if isinstance(row["refuse"], str):
            raise PlanError([Problem(key, row["refuse"].replace("{value}", str(value)))])
        named = find(key, {})
        known = choices or (named.choices if named is not None else {})
        chosen = known.get(str(value).lower())
        if chosen is None:
            message = f"is {str(value).lower()}; known are {', '.join(known)}"
            raise PlanError([Problem(key, message, "rlfactory list")])
        self.type(*chosen.split())

    def value(self, key: str) -> Any:
        """The value of a formula, of one of our keys as typed, or of one of theirs as given."""
        if key in self.named:
            return self.named[key]
        if key in self.words:
            return self.words[key].partition("=")[2]
        return self.given.get(key)

    def _holds(self, key: str, wanted: Any) -> bool:
        value = self.value(key)
        if wanted is None or isinstance(wanted, bool):
            return (value is None) if wanted is None else bool(value) == wanted
        if isinstance(wanted, str) and wanted.startswith("~"):
            text = "" if value is None else str(value)
            return re.search(wanted[1:], text, re.IGNORECASE) is not None
        if isinstance(wanted, str) and wanted.startswith(">"):
            count = number(str(value))  # none: a variable that a script does not set
            return count is not None and count > float(wanted[1:])
        if isinstance(wanted, str) and wanted.startswith("!="):
            other = self.given.get(wanted[2:])
            return value is not None and other is not None and float(value) != float(other)
        return str(value) in map(str, wanted if isinstance(wanted, list) else [wanted])

    def _filled(self, text: str) -> str:
        def found(match: re.Match[str]) -> str:
            value = self.value(match[1])
            return value.rstrip("/") if isinstance(value, str) else typed_value(value)

        return OTHER.sub(found, text)

    def sizes(self) -> dict[str, Any]:
        """The numbers by which counts of other units are converted, as far as they are typed."""
        names = ("iterations", "epochs", "updates_per_iteration", "prompts_per_iteration")
        typed = {key: int(self.value(key)) for key in (*names, "group_size") if key in self.words}
        length = self.words.get("dynamics.length", "").partition("=")[2]
        known = {"epochs": 1, "updates_per_iteration": 1}
        known |= {"processes": self.given.get("processes", 1), **typed}
        return {**known, "dynamics": {"length": int(length)} if length else {}}

    def translate_rest(self, peers: Sequence[str], nothing: Mapping[str, str]) -> None:
        """Translate what is left by the table of names, and list what has no counterpart."""
        typed = [f"{key}={typed_value(value)}" for key, value in self.left.items()]
        for key, value in self.left.items():
            name = key.rpartition(".")[2]
            if value == "" or value == {}:
                continue
            if name in SAME and value is not None:
                self.type(f"{name}={value}")
                continue
            reason = nothing.get(key) or nothing.get(name)
            row = find(key, self.sizes(), *peers)
            if reason is None and row is not None and value is not None:
                if row.choices and isinstance(value, list) and len(value) == 1:
                    value = value[0]
                found = candidates(row, typed_value(value), self.sizes())
                if words := next((w for c in found if (w := filled(c, typed))), ()):
                    self.type(*(w for w in words if not w.startswith("model=tiny_")))
                    continue
                reason = row.caveat or NONE
            if value is not None or reason is not None:
                self.drop(key, value, reason or UNKNOWN)


@dataclass
class _Names:
    """The names that formulas know: `train.beta` is the value of this key, or false."""

    _made: Translation
    _prefix: str = ""

    def __getitem__(self, name: str) -> Any:
        if name in FUNCTIONS:
            raise KeyError(name)
        key = f"{self._prefix}{name}"
        value = self._made.sizes().get(key, self._made.value(key))
        return _Names(self._made, f"{key}.") if value is None else value

    __getattr__ = __getitem__

    def __bool__(self) -> bool:
        return False


def _folded(words: list[str]) -> str:
    lines = [""]
    for word in map(shlex.quote, words):
        if lines[-1] and len(lines[-1]) + len(word) > 96:
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n  ".join(lines)
