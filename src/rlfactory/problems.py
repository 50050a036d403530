"""What is wrong with a configuration, one entry a fault, so that all can be shown at once."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True)
class Problem:
    """A fault: the key, what is wrong with it, and what to type instead.

    The remedy is an override that replaces the faulty one, a key alone that takes over the value
    that was typed, or a whole command (`rlfactory ...`).
    """

    key: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


class PlanError(ValueError):
    """A configuration that can't run, with every problem found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def report(problems: Iterable[Problem], typed: Sequence[str]) -> str:
    """The problems for a terminal, each with the command that mends it."""
    lines = []
    for problem in problems:
        command = mended(problem, typed)
        lines += [f"error: {problem}", *([f"    try: {command}"] if command else [])]
    return "\n".join(lines)


def mended(problem: Problem, typed: Sequence[str]) -> str:
    """The typed command with the faulty override replaced; empty where typing can't mend it."""
    if not problem.remedy or problem.remedy.startswith("rlfactory"):
        return problem.remedy
    new = problem.remedy
    replaces = "=" not in new or key_of(new) == problem.key
    faulty = [i for i, word in enumerate(typed) if replaces and key_of(word) == problem.key]
    if "=" not in new:
        if not faulty:
            return ""
        new += f"={typed[faulty[-1]].partition('=')[2]}"
    place = faulty[0] if faulty else len(typed)
    words = [w for i, w in enumerate(typed) if i not in faulty]
    return "rlfactory " + shlex.join([*words[:place], new, *words[place:]])


def key_of(word: str) -> str:
    """The key of an override: `reward` of `+reward@x=shapes`."""
    return word.lstrip("+~").partition("=")[0].partition("@")[0]


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like a misspelt one, if any is."""
    found = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def unknown_key(key: str, known: Iterable[str], part: str | None = None) -> Problem:
    """A key that does not exist, beside the ones that do. `part` of it is what is not known."""
    part = part or key
    prefix, _, name = part.rpartition(".")
    names = sorted({*known} - {"_target_"})
    guess = closest(name, names)
    message = f"there is no such key; known here: {', '.join(names) or 'none'}"
    if guess is None:
        return Problem(key, message)
    meant = (f"{prefix}.{guess}" if prefix else guess) + key.removeprefix(part)
    return Problem(key, f"{message}. Did you mean {meant}?", meant)
