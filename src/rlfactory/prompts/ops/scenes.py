"""Scenes of coloured shapes in GenEval's six categories: their grammar, and their rendering.

A `Scene` states what an image must show: `caption` puts it into words, `requirements` into
GenEval's metadata, and `arrange` into one of many images, 64 by 64 pixels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

Category = Literal["single_object", "two_object", "counting", "colors", "position", "color_attr"]
CATEGORIES: tuple[Category, ...] = get_args(Category)
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
    """`count` objects of one shape; `color=None` means any colour."""

    shape: str
    color: str | None = None
    count: int = 1


@dataclass(frozen=True)
class Scene:
    """Objects that an image must show; `relation` is that of the first clause to the second."""

    category: Category
    clauses: tuple[Clause, ...]
    relation: str | None = None


def sample_scene(category: Category, rng: np.random.Generator) -> Scene:
    """A random scene of `category`; two clauses differ in shape, and in colour if they have one."""
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
    """A random phrasing of a scene, in lower case."""
    phrases = [_noun_phrase(clause, scene.category) for clause in scene.clauses]
    link = " and "
    if scene.relation is not None:
        variants = _RELATION_PHRASES[scene.relation]
        link = f" {variants[rng.integers(len(variants))]} "
    return _OPENINGS[rng.integers(len(_OPENINGS))] + link.join(phrases)


def _noun_phrase(clause: Clause, category: Category) -> str:
    noun = clause.shape if clause.color is None else f"{clause.color} {clause.shape}"
    if category == "counting":
        ending = "es" if clause.shape == "cross" else "s"
        return f"{_NUMBERS[clause.count - 1]} {noun}{ending if clause.count > 1 else ''}"
    return with_article(noun)


def with_article(noun: str) -> str:
    """A noun after "a" or "an"."""
    return f"an {noun}" if noun[0] in "aeiouAEIOU" else f"a {noun}"


def requirements(scene: Scene) -> dict[str, Any]:
    """GenEval's metadata of a scene: `tag`, `include` (class, count, colour, position), `exclude`.

    Each clause also excludes one more object of its class, so that a surplus is an error in every
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


def vocabulary() -> list[str]:
    """Every word that a caption can contain, sorted."""
    text = [*_NUMBERS, *_OPENINGS, *COLORS, *SHAPES, "a an and crosses"]
    text += [f"{shape}s" for shape in SHAPES if shape != "cross"]
    text += [phrase for phrases in _RELATION_PHRASES.values() for phrase in phrases]
    return sorted({word for entry in text for word in entry.split()})


SIZE = 64
_SUPERSAMPLING = 4
_MARGIN = 2.0
_GAP = 3.0
_RADII = {1: (9.0, 15.0), 2: (8.0, 12.0), 3: (7.0, 10.0), 4: (6.5, 9.0)}


@dataclass(frozen=True)
class Placed:
    """An object with its centre and the half side of its bounding square, in pixels."""

    shape: str
    color: str
    x: float
    y: float
    radius: float


def arrange(scene: Scene, rng: np.random.Generator) -> list[Placed]:
    """Random places and sizes of objects: inside the image, apart, and in their relation."""
    clauses = [clause for clause in scene.clauses for _ in range(clause.count)]
    low, high = _RADII[len(clauses)]
    while True:
        radii = rng.uniform(low, high, len(clauses))
        x, y = (rng.uniform(radii + _MARGIN, SIZE - radii - _MARGIN) for _ in range(2))
        if _apart(x, y, radii) and _related(scene.relation, x, y):
            break
    names = list(COLORS)
    return [
        Placed(c.shape, c.color or names[rng.integers(len(names))], *map(float, circle))
        for c, circle in zip(clauses, zip(x, y, radii, strict=True), strict=True)
    ]


def _apart(x: NDArray[np.float64], y: NDArray[np.float64], radii: NDArray[np.float64]) -> bool:
    distance = np.maximum(np.abs(x[:, None] - x), np.abs(y[:, None] - y))
    needed = radii[:, None] + radii + _GAP
    return bool((distance + 1e9 * np.eye(len(x)) >= needed).all())


def _related(relation: str | None, x: NDArray[np.float64], y: NDArray[np.float64]) -> bool:
    """Whether the first object is in the relation to the second, mostly along its axis."""
    if relation is None:
        return True
    dx, dy = x[0] - x[1], y[0] - y[1]
    along, across = (dx, dy) if relation in ("left of", "right of") else (dy, dx)
    sign = -1 if relation in ("left of", "above") else 1
    return bool(sign * along > abs(across))


def background(rng: np.random.Generator) -> tuple[int, int, int]:
    """A random pale grey (RGB), from which every colour of the grammar differs clearly."""
    shade = int(rng.integers(200, 251))
    return shade, shade, shade


def render(objects: Sequence[Placed], shade: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Paint objects on a plain background, anti-aliased: `[64, 64, 3]` uint8, RGB."""
    side = SIZE * _SUPERSAMPLING
    image = Image.new("RGB", (side, side), shade)
    pen = ImageDraw.Draw(image)
    for item in objects:
        points = outline(item.shape) * item.radius + (item.x, item.y)
        pen.polygon([tuple(p) for p in points * _SUPERSAMPLING], fill=COLORS[item.color])
    return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BOX))


def outline(shape: str) -> NDArray[np.float64]:
    """A shape's corners `[N, 2]` (x, y downwards), stretched to fill the square from -1 to 1."""
    points = _CORNERS[shape]
    low, high = points.min(0), points.max(0)
    return 2 * (points - low) / (high - low) - 1


def _regular(corners: int, inner: float = 1.0) -> NDArray[np.float64]:
    """A regular polygon with a corner at the top; with an `inner` radius, a star."""
    count = corners if inner == 1.0 else 2 * corners
    angle = 2 * math.pi * np.arange(count) / count - math.pi / 2
    radius = np.where(np.arange(count) % 2 == 1, inner, 1.0)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)


def _cross(arm: float = 0.3) -> NDArray[np.float64]:
    """A plus sign whose arms are `2 * arm` wide."""
    a = arm
    corners = [(-a, -1), (a, -1), (a, -a), (1, -a), (1, a), (a, a), (a, 1), (-a, 1), (-a, a)]
    return np.array([*corners, (-1, a), (-1, -a), (-a, -a)])


_CORNERS = {
    "circle": _regular(64),
    "square": np.array([(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]),
    "triangle": _regular(3),
    "star": _regular(5, inner=0.42),
    "cross": _cross(),
}
assert set(_CORNERS) == set(SHAPES)
