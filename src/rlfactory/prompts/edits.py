"""Instructions to edit a picture of coloured shapes."""

from collections.abc import Iterator
from functools import cache
from itertools import count, islice
from typing import Literal

import numpy as np
from PIL import Image

from rlfactory.prompts.base import Prompt, Prompts
from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.prompts.ops.pictured import PicturedText, png_of
from rlfactory.prompts.ops.scenes import (
    COLORS,
    SHAPES,
    Clause,
    Scene,
    arrange,
    background,
    render,
    requirements,
    with_article,
)

Edit = Literal["recolor", "replace", "add", "remove"]
EDITS: tuple[Edit, ...] = ("recolor", "replace", "add", "remove")
_HELD_OUT_SEED = 30_000


class EditsPrompts(Prompts):
    """Pictures of one or two shapes, each with an instruction: another colour or shape, one more
    or one less.

    The metadata says what the edited picture must show, as of `ShapesPrompts`, with the edit as
    `tag`; a quarter of the instructions, by a hash, is held out. `edits` (None: all four) come in
    turns. ValueError if it is empty.
    """

    metadata = ("tag", "include", "exclude")
    separate = True
    features = ()
    media = "images"
    pictures = True

    def __init__(self, *, edits: list[Edit] | None = None) -> None:
        """
        Args:
            edits: Some of recolor, replace, add, remove; null: all.
        """
        if edits is not None and not edits:
            raise ValueError(f"prompts.edits is empty; give some of {', '.join(EDITS)}")
        self.edits = EDITS if edits is None else tuple(edits)

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` pictures, new ones, with instructions that are not held out."""
        return [
            next(_prompts(self._edit(iteration * count + slot), [seed, iteration, slot], False))
            for slot in range(count)
        ]

    def held_out(self, count: int) -> list[Prompt]:
        """`count` pictures with held-out instructions, the edits in turn."""
        share = -(-count // len(self.edits))
        columns = [_first_held_out(edit, share) for edit in self.edits]
        return [columns[i % len(columns)][i // len(columns)] for i in range(count)]

    def _edit(self, index: int) -> Edit:
        return self.edits[index % len(self.edits)]


@cache
def _first_held_out(edit: Edit, number: int) -> tuple[Prompt, ...]:
    return tuple(islice(_prompts(edit, [_HELD_OUT_SEED, EDITS.index(edit)], True), number))


def _prompts(edit: Edit, key: list[int], held_out: bool) -> Iterator[Prompt]:
    """Edits of one kind, without end; their instructions held out or not."""
    rng = np.random.default_rng(key)
    for _ in count():
        before, instruction, after = sample_edit(edit, rng)
        if is_held_out(instruction) == held_out:
            picture = Image.fromarray(render(arrange(before, rng), background(rng)))
            asked = requirements(after)
            asked["exclude"] += [
                {"class": clause.shape, "count": 1}
                for clause in before.clauses
                if clause.shape not in {kept.shape for kept in after.clauses}
            ]
            yield Prompt(PicturedText(instruction, png_of(picture)), {**asked, "tag": edit})


def sample_edit(edit: Edit, rng: np.random.Generator) -> tuple[Scene, str, Scene]:
    """A random edit of a kind: the scene before, the instruction, the scene that must result."""
    shape, other = (SHAPES[i] for i in rng.permutation(len(SHAPES))[:2])
    color, another = ([*COLORS][i] for i in rng.permutation(len(COLORS))[:2])
    one, two = Clause(shape, color), Clause(other, another)
    alone, both = Scene("colors", (one,)), Scene("color_attr", (one, two))
    match edit:
        case "recolor":
            changed = Scene("colors", (Clause(shape, another),))
            return alone, f"make the {shape} {another}", changed
        case "replace":
            changed = Scene("colors", (Clause(other, color),))
            return alone, f"turn the {shape} into a {other}", changed
        case "add":
            return alone, f"add {with_article(another)} {other}", both
        case "remove":
            return both, f"remove the {other}", alone
