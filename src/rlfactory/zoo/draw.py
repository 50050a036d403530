"""From a scene to a picture: places the objects and paints them, 64 by 64 pixels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from rlfactory.zoo.scenes import COLORS, SHAPES, Scene

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
    """Place a scene's objects at random: inside the picture, apart from each other, in their
    relation.
    """
    wanted = [clause for clause in scene.clauses for _ in range(clause.count)]
    low, high = _RADII[len(wanted)]
    while True:
        radii = rng.uniform(low, high, len(wanted))
        x, y = (rng.uniform(radii + _MARGIN, SIZE - radii - _MARGIN) for _ in range(2))
        if _apart(x, y, radii) and _related(scene.relation, x, y):
            break
    names = list(COLORS)
    return [
        Placed(c.shape, c.color or names[rng.integers(len(names))], *map(float, place))
        for c, place in zip(wanted, zip(x, y, radii, strict=True), strict=True)
    ]


def _apart(x: NDArray[np.float64], y: NDArray[np.float64], radii: NDArray[np.float64]) -> bool:
    distance = np.maximum(np.abs(x[:, None] - x), np.abs(y[:, None] - y))
    needed = radii[:, None] + radii + _GAP
    return bool((distance + 1e9 * np.eye(len(x)) >= needed).all())


def _related(relation: str | None, x: NDArray[np.float64], y: NDArray[np.float64]) -> bool:
    """Whether the first object stands in the relation to the second, that axis being the longer
    one.
    """
    if relation is None:
        return True
    dx, dy = x[0] - x[1], y[0] - y[1]
    along, across = (dx, dy) if relation in ("left of", "right of") else (dy, dx)
    sign = -1 if relation in ("left of", "above") else 1
    return bool(sign * along > abs(across))


def background(rng: np.random.Generator) -> tuple[int, int, int]:
    """A pale grey, so that every colour of the grammar stands out."""
    shade = int(rng.integers(200, 251))
    return shade, shade, shade


def render(objects: Sequence[Placed], shade: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Paint objects on a plain background, anti-aliased; returns `[64, 64, 3]`."""
    side = SIZE * _SUPERSAMPLING
    image = Image.new("RGB", (side, side), shade)
    pen = ImageDraw.Draw(image)
    for item in objects:
        points = outline(item.shape) * item.radius + (item.x, item.y)
        pen.polygon([tuple(p) for p in points * _SUPERSAMPLING], fill=COLORS[item.color])
    return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BOX))


def outline(shape: str) -> NDArray[np.float64]:
    """A shape's corners `[N, 2]`, stretched to fill the square from -1 to 1 (y points down)."""
    points = _CORNERS[shape]
    low, high = points.min(0), points.max(0)
    stretched: NDArray[np.float64] = 2 * (points - low) / (high - low) - 1
    return stretched


def _regular(corners: int, inner: float = 1.0) -> NDArray[np.float64]:
    """A regular polygon standing on its base; with an inner radius, a star of as many points."""
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
