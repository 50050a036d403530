"""The grammar of captioned scenes, in GenEval's six categories.

A `Scene` says what must be in a picture and nothing more: `caption` puts it into words,
`requirements` into GenEval's metadata, and `draw.arrange` into one of many pictures.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Category = Literal["single_object", "two_object", "counting", "colors", "position", "color_attr"]

CATEGORIES: tuple[Category, ...] = (
    "single_object",
    "two_object",
    "counting",
    "colors",
    "position",
    "color_attr",
)
SHAPES = ("circle", "square", "triangle", "star", "cross")
COLORS: dict[str, tuple[int, int, int]] = {
    "red": (215, 35, 40),
    "orange": (250, 140, 25),
    "yellow": (245, 215, 30),
    "green": (40, 150, 60),
    "blue": (35, 90, 215),
    "purple": (125, 45, 165),
    "pink": (250, 130, 185),
    "black": (20, 20, 25),
}
RELATIONS = ("left of", "right of", "above", "below")

_NUMBERS = ("one", "two", "three", "four")
_OPENINGS = ("", "a photo of ", "a picture of ", "an image of ", "a drawing of ")
_RELATION_PHRASES = {
    "left of": ("left of", "to the left of"),
    "right of": ("right of", "to the right of"),
    "above": ("above", "over"),
    "below": ("below", "under"),
}


@dataclass(frozen=True)
class Clause:
    """`count` objects of one shape; a colour of None means any colour."""

    shape: str
    color: str | None = None
    count: int = 1


@dataclass(frozen=True)
class Scene:
    """What a picture must show. With a relation, the first clause stands in that relation to the
    second.
    """

    category: Category
    clauses: tuple[Clause, ...]
    relation: str | None = None


def sample_scene(category: Category, rng: np.random.Generator) -> Scene:
    """Draw a scene of `category`; two clauses always differ in shape and, where given, in
    colour.
    """
    first, second = (SHAPES[i] for i in rng.permutation(len(SHAPES))[:2])
    color, other = (list(COLORS)[i] for i in rng.permutation(len(COLORS))[:2])
    match category:
        case "single_object":
            return Scene(category, (Clause(first),))
        case "two_object":
            return Scene(category, (Clause(first), Clause(second)))
        case "counting":
            return Scene(category, (Clause(first, None, int(rng.integers(1, 5))),))
        case "colors":
            return Scene(category, (Clause(first, color),))
        case "position":
            relation = RELATIONS[rng.integers(len(RELATIONS))]
            return Scene(category, (Clause(first, color), Clause(second, other)), relation)
        case "color_attr":
            return Scene(category, (Clause(first, color), Clause(second, other)))


def caption(scene: Scene, rng: np.random.Generator) -> str:
    """One of several phrasings of a scene, in lower case."""
    phrases = [_noun_phrase(clause, scene.category) for clause in scene.clauses]
    joint = " and "
    if scene.relation is not None:
        variants = _RELATION_PHRASES[scene.relation]
        joint = f" {variants[rng.integers(len(variants))]} "
    return _OPENINGS[rng.integers(len(_OPENINGS))] + joint.join(phrases)


def _noun_phrase(clause: Clause, category: Category) -> str:
    noun = clause.shape if clause.color is None else f"{clause.color} {clause.shape}"
    if category == "counting":
        ending = "es" if clause.shape == "cross" else "s"
        return f"{_NUMBERS[clause.count - 1]} {noun}{ending if clause.count > 1 else ''}"
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def requirements(scene: Scene) -> dict[str, Any]:
    """GenEval's metadata: what to `include`, by class, count, colour and position, and what to
    `exclude`.

    Every clause also excludes one object more of its class, so that a surplus is an error in each
    category.
    """
    include: list[dict[str, Any]] = []
    for clause in reversed(scene.clauses) if scene.relation else scene.clauses:
        entry: dict[str, Any] = {"class": clause.shape, "count": clause.count}
        if clause.color is not None:
            entry["color"] = clause.color
        include.append(entry)
    if scene.relation is not None:
        include[1]["position"] = [scene.relation, 0]
    exclude = [{"class": clause.shape, "count": clause.count + 1} for clause in scene.clauses]
    return {"tag": scene.category, "include": include, "exclude": exclude}


def is_held_out(text: str) -> bool:
    """Whether a caption belongs to the quarter that training never draws, by its words alone."""
    return hashlib.sha256(text.encode()).digest()[0] % 4 == 0


def vocabulary() -> list[str]:
    """Every word that a caption can contain, sorted."""
    text = [*_NUMBERS, *_OPENINGS, *COLORS, *SHAPES, "a an and crosses"]
    text += [f"{shape}s" for shape in SHAPES if shape != "cross"]
    text += [phrase for phrases in _RELATION_PHRASES.values() for phrase in phrases]
    return sorted({word for entry in text for word in entry.split()})
