"""Problems of a configuration, one entry a fault, so that all are reported at once."""

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from rlfactory.utils.errors import UserError


@dataclass(frozen=True)
class Problem:
    """A fault: the key, what is wrong with it, and how to fix it.

    Attributes:
        key: the configuration key, or the word that was typed.
        message: what is wrong and what is allowed.
        fix: an override that replaces the faulty one, a key alone that takes the value that was
            typed, or a full command (`rlfactory ...`); empty where typing can't fix it. A fix must
            work when typed: no placeholders.
        instead: words that take the place of the typed override, where `fix` can't say it: several,
            or of other keys, or none. None: `fix` applies.
        candidates: words that may take its place, most fitting first: the first that give a plan
            are what is suggested.
    """

    key: str
    message: str
    fix: str = ""
    instead: tuple[str, ...] | None = None
    candidates: tuple[tuple[str, ...], ...] = ()

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


class PlanError(UserError, ValueError):
    """A configuration that can't run, with every problem found.

    Its text has a line a problem, with the override that fixes it.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        # for a Python caller; `report` shows a command instead
        told = (f"{p} (try {p.fix!r})" if "=" in p.fix else str(p) for p in self.problems)
        super().__init__("\n".join(told))


def report(problems: Iterable[Problem], typed: Sequence[str], command: str | None = None) -> str:
    """The problems for a terminal, and what to type.

    Args:
        problems: what is wrong.
        typed: the words of the command.
        command: one that was found to fix them all, empty if none was found; None if none was
            searched, so that each problem has its own.
    """
    problems = list(problems)
    faulty = {problem.key for problem in problems}
    lines = []
    for problem in problems:
        lines += [f"error: {problem}"]
        own = fix_command(problem, typed, faulty) if command is None else ""
        is_own = problem.instead is None and problem.fix.startswith("rlfactory")
        if own and (len(problems) == 1 or is_own):
            lines += [f"    try: {own}"]
        elif own and (words := problem.instead or (problem.fix,)):  # no whole command yet
            lines += [f"    instead: {shlex.join(words)}"]
    return "\n".join([*lines, *([f"    try: {command}"] if command else [])])


EXPLAIN = "rlfactory explain "
CHOSEN = ("experiment", "model", "algo", "dynamics", "regularizer", "prompts", "reward")
"""Groups whose choices decide which keys there are."""


def fix_command(problem: Problem, typed: Sequence[str], faulty: Collection[str] = ()) -> str:
    """The typed command with the faulty override replaced; empty where there is none.

    Args:
        problem: what is wrong.
        typed: the words of the command.
        faulty: keys whose words an explanation leaves out; it takes the other choices of groups.
    """
    if problem.instead is None and (not problem.fix or problem.fix.startswith("rlfactory")):
        choices = [w for w in typed if override_key(w) in CHOSEN and override_key(w) not in faulty]
        is_plain = problem.fix.startswith(EXPLAIN) and "=" not in problem.fix
        return " ".join([problem.fix, *map(shlex.quote, choices if is_plain else [])])
    words = fixed_words(problem, typed)
    return "" if words is None else f"rlfactory {shlex.join(words)}"


def fixed_words(problem: Problem, typed: Sequence[str]) -> list[str] | None:
    """The words with the faulty override replaced; None where the problem has no fix for them."""
    if problem.instead is not None:
        return _replaced(typed, problem.key, problem.instead)
    fix = problem.fix
    if not fix or fix.startswith("rlfactory"):
        return None
    if "=" not in fix:  # a key, which takes the value that was typed
        values = [
            word.partition("=")[2]
            for word in typed
            if override_key(word) == problem.key and not word.startswith("~")
        ]
        return _replaced(typed, problem.key, [f"{fix}={values[-1]}"]) if values else None
    return _replaced(typed, override_key(fix), [fix])


def _replaced(words: Sequence[str], key: str, new: Sequence[str]) -> list[str]:
    """The words with `new` in the place of the overrides of a key, else at the end; none twice."""
    place = next((i for i, word in enumerate(words) if override_key(word) == key), len(words))
    before, after = words[:place], [w for w in words[place:] if override_key(w) != key]
    return [*before, *(word for word in new if word not in (*before, *after)), *after]


def override_key(word: str) -> str:
    """The key of an override: `reward` of `+reward@x=shapes`."""
    return word.lstrip("+~").partition("=")[0].partition("@")[0]


MISSPELT = 0.84
"""Similarity from which on a key is a misspelling of another. `num_generations` and `iterations`,
which mean different things, have 0.72, `num_iterations` has 0.83; `bta` and `beta` have 0.86."""


def closest(word: str, known: Iterable[str], similarity: float = 0.6) -> str | None:
    """The known word that is most like a misspelt one, if any is; letters may be swapped."""
    words = list(known)
    found = get_close_matches(word, words, n=1, cutoff=similarity)
    return next(iter(found or [w for w in words if sorted(w) == sorted(word)]), None)


def unknown_name(key: str, what: str, name: str, known: Iterable[str], fix: str = "") -> Problem:
    """A name that there is none of, beside those that there are.

    `fix` is what the likeliest of them completes, `KEY=` if it is empty.
    """
    names = list(known)
    guess = names[0] if len(names) == 1 else closest(name, names)
    meant = f". Did you mean {guess}?" if guess else ""
    comma = "; " if any("," in other for other in names) else ", "
    message = f"there is no {what} {name}; known are {comma.join(names) or 'none'}{meant}"
    return Problem(key, message, f"{fix or f'{key}='}{guess}" if guess else "")


def unknown_key(key: str, known: Iterable[str], part: str | None = None) -> Problem:
    """A key that does not exist, beside the ones that do. `part` of it is what is not known."""
    part = part or key
    prefix, _, name = part.rpartition(".")
    names = {*known} - {"_target_"}
    guess = closest(name, names, MISSPELT)
    message = no_such_key(names)
    if guess is None:
        return Problem(key, message)
    meant = (f"{prefix}.{guess}" if prefix else guess) + key.removeprefix(part)
    return Problem(key, f"{message}. Did you mean {meant}?", meant)


def untaken_key(key: str, target: str) -> Problem:
    """A key that the plan reads, and that the component `target` does not take."""
    return Problem(key, f"is missing; {target} must take it, as the plan reads it")


def no_such_key(known: Iterable[str]) -> str:
    """The message on a key that does not exist, beside the ones that do."""
    return f"there is no such key; known here: {', '.join(sorted(known)) or 'none'}"
