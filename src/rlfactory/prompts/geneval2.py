"""Prompts in the manner of GenEval 2 (arXiv 2512.16853), with a question for each atom."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rlfactory.prompts.base import Prompt, Prompts, different_prompts
from rlfactory.prompts.ops.prompt_list import shipped_texts
from rlfactory.prompts.ops.scenes import with_article
from rlfactory.utils.types import PositiveInt

OBJECTS, ATTRIBUTES, RELATIONS = shipped_texts("geneval2").values()
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven")
_HELD_OUT_SEED = 20_002


class PromptPart(NamedTuple):
    """Some objects of a class; `attribute` None for any."""

    name: str
    number: int
    attribute: str | None

    @property
    def noun(self) -> str:
        """The class, in the number that there is of it."""
        return self.name if self.number == 1 else f"{self.name}s"

    @property
    def subject(self) -> str:
        """How a question begins that asks about all of them."""
        return f"{'Is' if self.number == 1 else 'Are'} the {self.noun}"

    @property
    def words(self) -> str:
        """How a prompt names them."""
        named = f"{self.attribute} {self.noun}" if self.attribute else self.noun
        return f"{NUMBERS[self.number - 1]} {named}" if self.number > 1 else with_article(named)

    def questions(self) -> Iterator[tuple[str, str, str]]:
        """Skill, question and answer of each atom; one object is counted too, as published."""
        yield "count", f"How many {self.name}s are in the image?", NUMBERS[self.number - 1]
        if self.attribute:
            yield "attribute", f"{self.subject} {self.attribute}?", "Yes"
        yield "object", f"Are there any {self.name}s in the image?", "Yes"


class GenEval2Prompts(Prompts):
    """Prompts of 1 to `parts` kinds of objects; a quarter of all, by a hash, is held out.

    Metadata is that of the benchmark's `geneval2_data.jsonl`: `vqa_list`, `skills`, `atom_count`.
    """

    metadata = ("vqa_list", "skills", "atom_count")
    separate = True
    media = "images"

    def __init__(self, *, parts: PositiveInt = 3) -> None:
        """
        Args:
            parts: The most kinds of objects in a prompt.
        """
        self.parts = parts

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` prompts that are not held out, distinct unless there are too few."""
        sources = [self._draws(seed, iteration, slot) for slot in range(count)]
        return different_prompts(sources, held_out=False)

    def held_out(self, count: int) -> list[Prompt]:
        """`count` held-out prompts; a smaller `count` gives the first."""
        sources = [self._draws(_HELD_OUT_SEED, slot) for slot in range(count)]
        return different_prompts(sources, held_out=True)

    def _draws(self, *key: int) -> Iterator[Prompt]:
        rng = np.random.default_rng(key)
        while True:
            yield prompt(rng, self.parts)


def prompt(rng: np.random.Generator, most: int) -> Prompt:
    """A random prompt of 1 to `most` kinds of objects, held out or not."""
    number = int(rng.integers(1, most + 1))
    names = [OBJECTS[i] for i in rng.permutation(len(OBJECTS))[:number]]
    parts = [_part(name, rng) for name in names]
    words, asked = parts[0].words, [*parts[0].questions()]
    for first, second in pairwise(parts):
        relation = RELATIONS[rng.integers(len(RELATIONS))] if rng.random() < 0.5 else None
        words += f" {relation or 'and'} {second.words}"
        if relation:
            asked.append(("position", f"{first.subject} {relation} the {second.noun}?", "Yes"))
        asked += second.questions()
    return Prompt(words, _metadata(parts, asked))


def _part(name: str, rng: np.random.Generator) -> PromptPart:
    count = int(rng.integers(1, len(NUMBERS) + 1)) if rng.random() < 0.5 else 1
    attribute = ATTRIBUTES[rng.integers(len(ATTRIBUTES))] if rng.random() < 0.7 else None
    return PromptPart(name, count, attribute)


def _metadata(parts: list[PromptPart], asked: list[tuple[str, str, str]]) -> dict[str, Any]:
    alone = sum(part.number == 1 for part in parts)  # "a" is asked and is no atom
    return {
        "vqa_list": [[question, answer] for _, question, answer in asked],
        "skills": [skill for skill, *_ in asked],
        "atom_count": len(asked) - alone,
    }
