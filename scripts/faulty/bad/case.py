"""A command that can't be right, and what its refusal must name."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

SUBJECTS = ("check", "")
"""A refusal is the same whether a run is planned or begun."""


@dataclass(frozen=True)
class Case:
    """What is typed after `rlfactory`, in a folder with `files`; one of `names` is at fault.

    `problem` is what makes it invalid, for whoever reads that it was accepted.
    """

    problem: str
    words: tuple[str, ...]
    names: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)

    def __str__(self) -> str:
        typed = " ".join(
            word if len(word) < 80 else f"{word[:60]}...({len(word)})" for word in self.words
        )
        return ascii(f"{self.problem}: rlfactory {typed}")[1:-1]


Maker = Callable[[random.Random], Case]


def planned(rng: random.Random, problem: str, words: list[str], *names: str) -> Case:
    """A case of overrides, for `check` or for a run."""
    subject = rng.choice(SUBJECTS)
    return Case(problem, (*([subject] if subject else []), *words), names)


def misspelt(rng: random.Random, word: str, known: object) -> str:
    """A word with a slip in it, which is none of the `known` ones."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    while True:
        place = rng.randrange(len(word))
        left, here, right = word[:place], word[place], word[place + 1 :]
        slips = [left + right, left + 2 * here + right, left + rng.choice(letters) + right]
        slips.append(left + right[:1] + here + right[1:])
        found = rng.choice(slips)
        if found.isidentifier() and found != word and found not in known:  # type: ignore[operator]
            return found
