"""What is wrong with a configuration, one entry a fault, so that all can be shown at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True)
class Problem:
    """A fault: the key, what is wrong with it, and what to type instead."""

    key: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" + (f"\n    try: {self.remedy}" if self.remedy else "")


class PlanError(ValueError):
    """A configuration that can't run, with every problem found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like a misspelt one, if any is."""
    found = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def unknown_key(key: str, known: Iterable[str], command: str) -> Problem:
    """A key that does not exist beside the ones that do."""
    prefix, _, name = key.rpartition(".")
    names = sorted(known)
    guess = closest(name, names)
    meant = f"{prefix}.{guess}" if prefix and guess else guess
    message = f"there is no such key; known here: {', '.join(names) or 'none'}"
    if meant is None:
        return Problem(key, message)
    return Problem(key, f"{message}. Did you mean {meant}?", f"{command} {meant}=...")
