"""GenEval's prompts, made by its templates over COCO's classes."""

from collections.abc import Sequence
from itertools import accumulate, cycle
from typing import Any

import numpy as np

from rlfactory.prompts.base import Prompt, Prompts
from rlfactory.reward.geneval_metadata import COLORS, OBJECTS, RELATIONS
from rlfactory.types import NonNegative
from rlfactory.zoo.scenes import CATEGORIES, Category, is_held_out

Clause = dict[str, Any]

FLOW_GRPO: dict[Category, float] = {
    **{"single_object": 0, "two_object": 1, "counting": 5},
    **{"colors": 1, "position": 7, "color_attr": 3},
}
"""How often Flow-GRPO trains on each category."""
_NUMBERS = ("two", "three", "four")
_COLORED = tuple(name for name in OBJECTS if name != "person")
_HELD_OUT_SEED = 20_001
_TRIES = 300  # at a prompt that is not there yet


class GenEvalPrompts(Prompts):
    """Drawn anew each iteration; a quarter of all, by their words, is kept for evaluation.

    `shares` says how often each category is drawn, 0 where nothing is said; None is Flow-GRPO's
    mixture. Evaluation takes all six in turns, as the benchmark does.
    Source: Ghosh et al. 2023; Liu et al. 2025.
    """

    metadata = ("tag", "include", "exclude")

    def __init__(self, *, shares: dict[Category, NonNegative] | None = None) -> None:
        given = FLOW_GRPO if shares is None else shares
        if not sum(given.values()) > 0:
            raise ValueError("prompts.shares gives no category a share; prompts.shares.position=1")
        self.categories = [name for name in CATEGORIES if given.get(name, 0) > 0]
        self.bounds = list(accumulate(given[name] for name in self.categories))

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` prompts, none held out, distinct unless a category has too few of them."""
        rngs = [np.random.default_rng([seed, iteration, slot]) for slot in range(count)]
        return _distinct([(self._category(rng), rng) for rng in rngs], held_out=False)

    def held_out(self, count: int) -> list[Prompt]:
        """`count` prompts that `draw` never gives, the categories in turn; fewer begin alike."""
        rngs = [np.random.default_rng([_HELD_OUT_SEED, slot]) for slot in range(count)]
        return _distinct(list(zip(cycle(CATEGORIES), rngs, strict=False)), held_out=True)

    def _category(self, rng: np.random.Generator) -> Category:
        place = np.searchsorted(self.bounds, rng.random() * self.bounds[-1], side="right")
        return self.categories[int(place)]


def _distinct(
    slots: Sequence[tuple[Category, np.random.Generator]], *, held_out: bool
) -> list[Prompt]:
    """A prompt for each slot, of the wanted side."""
    prompts: list[Prompt] = []
    taken: set[str] = set()
    for category, rng in slots:
        prompts.append(_sample(category, rng, held_out, taken))
        taken.add(prompts[-1].text)
    return prompts


def _sample(
    category: Category, rng: np.random.Generator, held_out: bool, taken: set[str]
) -> Prompt:
    """A prompt of the wanted side, within a fair number of tries not `taken`."""
    tries = (prompt(category, rng) for _ in range(_TRIES))
    ours = [next(p for p in tries if is_held_out(p.text) == held_out)]
    while ours[-1].text in taken:
        ours.append(next((p for p in tries if is_held_out(p.text) == held_out), ours[0]))
        if ours[-1] is ours[0]:
            break
    return ours[-1]


def prompt(category: Category, rng: np.random.Generator) -> Prompt:
    """Any prompt of a category, with what must be in the picture."""
    names = _COLORED if category in ("colors", "color_attr") else OBJECTS
    first, second = (names[i] for i in rng.permutation(len(names))[:2])
    color, other = (COLORS[i] for i in rng.permutation(len(COLORS))[:2])
    match category:
        case "single_object":
            return _prompt(category, _a(first), _clause(first))
        case "two_object":
            both = f"{_a(first)} and {_a(second)}"
            return _prompt(category, both, _clause(first), _clause(second))
        case "counting":
            count = int(rng.integers(2, 5))
            surplus = [_clause(first, count + 1)]
            words = f"{_NUMBERS[count - 2]} {first}{'es' if first.endswith('s') else 's'}"
            return _prompt(category, words, _clause(first, count), exclude=surplus)
        case "colors":
            return _prompt(category, f"{_a(color)} {first}", _clause(first, color=color))
        case "position":
            relation = RELATIONS[rng.integers(len(RELATIONS))]
            placed = _clause(first, position=[relation, 0])
            words = f"{_a(first)} {relation} {_a(second)}"
            return _prompt(category, words, _clause(second), placed)
        case "color_attr":
            both = f"{_a(color)} {first} and {_a(other)} {second}"
            clauses = _clause(first, color=color), _clause(second, color=other)
            return _prompt(category, both, *clauses)


def _prompt(
    category: Category, words: str, *include: Clause, exclude: Sequence[Clause] = ()
) -> Prompt:
    wanted = {"tag": category, "include": list(include), "exclude": list(exclude)}
    return Prompt(f"a photo of {words}", wanted)


def _clause(name: str, count: int = 1, **more: Any) -> Clause:
    return {"class": name, "count": count, **more}


def _a(words: str) -> str:
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"
