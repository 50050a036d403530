"""Captions of scenes of coloured shapes, in GenEval's six categories."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from itertools import cycle, islice

import numpy as np

from rlfactory.prompts.base import Prompt, Prompts
from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.prompts.ops.scenes import (
    CATEGORIES,
    Category,
    caption,
    requirements,
    sample_scene,
)

_TRIES = 200  # draws until a repeated caption is accepted within an iteration
_PATIENCE = 2_000  # scenes without a new held-out caption after which a category is exhausted
_HELD_OUT_SEED = 20_000


class ShapesPrompts(Prompts):
    """Captions drawn from a grammar in each iteration; a quarter of all, by a hash, is held out.

    `categories` (None: all six) come in turns, in a random order that changes from turn to turn.
    ValueError if it is empty.
    """

    metadata = ("tag", "include", "exclude")
    separate = True
    features = ()
    media = "images"
    endless = for_small_models = True

    def __init__(self, *, categories: list[Category] | None = None) -> None:
        """
        Args:
            categories: Some of single_object, two_object, counting, colors, position, color_attr;
                null: all.
        """
        if categories is not None and not categories:
            raise ValueError(f"prompts.categories is empty; give some of {', '.join(CATEGORIES)}")
        self.categories: Sequence[Category] = CATEGORIES if categories is None else categories

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` captions that are not held out, distinct unless a category has too few."""
        prompts: list[Prompt] = []
        taken: set[str] = set()
        for slot in range(count):
            rng = np.random.default_rng([seed, iteration, slot])
            category = self._category(iteration * count + slot, seed)
            prompts.append(_fresh(category, rng, taken))
            taken.add(prompts[-1].text)
        return prompts

    def held_out(self, count: int) -> list[Prompt]:
        """`count` held-out captions, the categories in turn.

        A category with too few repeats them; an evaluation samples each repeat with other noise.
        A smaller `count` gives the first ones of a larger one.
        """
        share = -(-count // len(self.categories))
        columns = [cycle(_first_held_out(category, share)) for category in self.categories]
        return deepcopy([next(columns[i % len(columns)]) for i in range(count)])

    def _category(self, index: int, seed: int) -> Category:
        turn, position = divmod(index, len(self.categories))
        order = np.random.default_rng([seed, turn]).permutation(len(self.categories))
        return self.categories[int(order[position])]


def _fresh(category: Category, rng: np.random.Generator, taken: set[str]) -> Prompt:
    """A caption that is not held out and, unless `_TRIES` draws fail, not `taken`."""
    tries = 0
    while True:
        prompt = _prompt(category, rng)
        tries += 1
        if not is_held_out(prompt.text) and (prompt.text not in taken or tries > _TRIES):
            return prompt


@cache  # an exhausted category costs thousands of scenes
def _first_held_out(category: Category, count: int) -> tuple[Prompt, ...]:
    return tuple(islice(_held_out(category), count))


def _held_out(category: Category) -> Iterator[Prompt]:
    """The held-out captions of a category, each once, in a fixed order."""
    rng = np.random.default_rng([_HELD_OUT_SEED, CATEGORIES.index(category)])
    seen: set[str] = set()
    misses = 0
    while misses < _PATIENCE:
        prompt = _prompt(category, rng)
        misses += 1
        if is_held_out(prompt.text) and prompt.text not in seen:
            seen.add(prompt.text)
            misses = 0
            yield prompt


def _prompt(category: Category, rng: np.random.Generator) -> Prompt:
    scene = sample_scene(category, rng)
    return Prompt(caption(scene, rng), requirements(scene))
