"""Finds the grammar's objects in small pictures, by colour and outline: no network, no training.

What stands out from the pale grey background in CIELAB is split by colour into connected
components, and each component's mask, stretched to a square, is compared with the five shapes.
Everything runs over the whole batch at once: `B` pictures of `H` by `W` pixels, `P` foreground
pixels in row-major order, `N` components, `C` colours.
"""

from functools import cache
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.spatial.distance import cdist

from rlfactory.reward.components import ColorMap, Components, Ints, components
from rlfactory.reward.geneval import Detection
from rlfactory.reward.lab import Floats, lab_colors, to_lab
from rlfactory.zoo.draw import Placed, render
from rlfactory.zoo.scenes import COLORS, SHAPES

Mask = NDArray[np.bool_]

UNKNOWN = "unknown"
FOREGROUND = 28.0  # CIELAB distance from the background; half of what the nearest colour, pink, has
NO_COLOR = 40.0  # CIELAB distance beyond which an object has none of the palette's colours
MIN_SHARE = 0.12  # of the inside of a blob: a smaller share of another colour is a flaw, no object
MIN_AREA = 0.007  # of the picture; the smallest star of the grammar has twice as much
MAX_SIDE = 0.75  # of the picture; the largest object of the grammar has 0.47
MAX_ASPECT = 1.4  # longer side by shorter side
MIN_OVERLAP = 0.68  # intersection over union with the best shape
_CELLS = 16
_RADII = (6.5, 8.0, 10.0, 15.0)  # pixels; the templates' classes of size
_BLURS = (0.0, 1.0)  # pixels
_EXAMPLES = 32  # drawn for each template
_PALEST, _DARKEST = 100.0, 76.0  # lightness of what passes for a background


def detect(images: NDArray[np.uint8]) -> list[list[Detection]]:
    """The objects in each picture of `images` `[B, H, W, 3]`, the best fitting first.

    A blob of a fair size that fits no shape is an object of class `UNKNOWN`.
    """
    color, lab = _painted(images)
    parts = components(color)
    kept = np.flatnonzero(parts.area >= MIN_AREA * color[0].size)
    detections: list[list[Detection]] = [[] for _ in images]
    shapes, overlap = _shapes(parts, kept, color)
    colors = _color_names(parts, kept, color, lab)
    for i in np.argsort(-overlap, kind="stable"):
        left, top, right, bottom = map(float, parts.box[kept[i]])
        found = Detection(shapes[i], colors[i], (left, top, right, bottom))
        detections[parts.image[kept[i]]].append(found)
    return detections


def _painted(images: NDArray[np.uint8]) -> tuple[ColorMap, Floats]:
    """Each pixel's colour, `[B, H, W]`: 0 for the background, else one plus the palette's index."""
    lab = lab_colors(images)
    shade = _shades(lab)
    contrast = _contrast(lab, shade[:, None, None])
    return _covered(_own_colors(lab, contrast > FOREGROUND), contrast, shade), lab


@cache
def _palette() -> Floats:
    return to_lab(np.array(list(COLORS.values())) / 255)


def _shades(lab: Floats) -> Floats:
    """The lightness `[B]` of a neutral pale grey background: that of most of the rim."""
    light = lab[..., 0]
    rim = [light[:, 0], light[:, -1], light[:, 1:-1, 0], light[:, 1:-1, -1]]
    shade: Floats = np.median(np.concatenate(rim, axis=1), axis=1).clip(_DARKEST, _PALEST)
    return shade


def _contrast(lab: Floats, shade: Floats) -> Floats:
    """CIELAB distances from a grey of lightness `shade`, which fits the leading axes of `lab`."""
    contrast: Floats = np.sqrt((lab[..., 0] - shade) ** 2 + lab[..., 1] ** 2 + lab[..., 2] ** 2)
    return contrast


def _covered(color: ColorMap, contrast: Floats, shade: Floats) -> ColorMap:
    """Colours without the pixels of which an object covers less than half, by their contrast."""
    full = _contrast(_palette(), shade[:, None])
    half = np.concatenate([np.zeros((len(full), 1), np.float32), full / 2], axis=1)
    image = np.arange(len(full))[:, None, None]
    return np.where(contrast >= half[image, color], color, 0)


def _own_colors(lab: Floats, foreground: Mask) -> ColorMap:
    """Each pixel's colour `[B, H, W]`: 0 for the background, else one plus the palette's index.

    The inside of a blob says which colours it has; its other pixels take the nearest of these, and
    its rim, where colours blend with the background, takes after the inside.
    """
    inside = _eroded(foreground)
    pixel = np.flatnonzero(foreground)
    distance = cdist(lab.reshape(-1, 3)[pixel], _palette())
    blobs = components(foreground.astype(np.uint8))
    owned = _owned(blobs, inside.ravel()[pixel], distance)
    nearest = np.where(owned[blobs.label], distance, np.inf).argmin(1).astype(np.uint8) + 1
    color = np.zeros(foreground.shape, np.uint8)
    color.ravel()[pixel] = nearest
    if (owned.sum(1) > 1).any():
        rim = _spread(np.where(inside, color, 0), foreground)
        color = np.where(rim > 0, rim, color)
    return color


def _owned(blobs: Components, inside: Mask, distance: NDArray[np.float64]) -> Mask:
    """Which colours `[N, C]` have a fair share of a blob's inside; at least its commonest."""
    weight = np.where(inside, 1.0, 1e-3)
    index = blobs.label * len(COLORS) + distance.argmin(1)
    votes = np.bincount(index, weight, len(blobs.area) * len(COLORS)).reshape(-1, len(COLORS))
    most = votes.max(1, keepdims=True)
    owned: Mask = (votes >= MIN_SHARE * votes.sum(1, keepdims=True)) | (votes == most)
    return owned


def _eroded(mask: Mask) -> Mask:
    """The pixels whose eight neighbours are in the mask too."""
    result = np.zeros_like(mask)
    rows = mask[:, :-2] & mask[:, 1:-1] & mask[:, 2:]
    result[:, 1:-1, 1:-1] = rows[..., :-2] & rows[..., 1:-1] & rows[..., 2:]
    return result


def _spread(color: ColorMap, foreground: Mask, steps: int = 3) -> ColorMap:
    """Let colours grow into the foreground that has none yet, a pixel in each step."""
    for axis in (1, 2) * steps:
        near = np.zeros_like(color)
        here, there = np.moveaxis(near, axis, 0), np.moveaxis(color, axis, 0)
        here[1:] = there[:-1]
        here[:-1] = np.where(here[:-1] > 0, here[:-1], there[1:])
        color = np.where((color == 0) & foreground, near, color)
    return color


def _shapes(
    parts: Components, kept: Ints, color: ColorMap
) -> tuple[list[str], NDArray[np.float64]]:
    """The class of each kept component, and its overlap with that shape."""
    size = parts.box[kept, 2:] - parts.box[kept, :2]
    overlap = _overlap(_masks(parts, kept, color))
    best, names = overlap.max(1), np.array(SHAPES)[overlap.argmax(1)]
    known = (best >= MIN_OVERLAP) & (size.max(1) <= MAX_ASPECT * size.min(1))
    known &= size.max(1) <= MAX_SIDE * color.shape[1]
    return np.where(known, names, UNKNOWN).tolist(), np.where(known, best, 0.0)


def _masks(parts: Components, kept: Ints, color: ColorMap) -> Floats:
    """The kept components, each stretched to a square of cells, `[N, cells * cells]` of 0 and 1."""
    grid = np.full(color.shape, -1, np.int32)
    grid[color > 0] = parts.label
    low, size = parts.box[kept, :2], parts.box[kept, 2:] - parts.box[kept, :2]
    steps = (np.arange(_CELLS) + 0.5) / _CELLS
    x, y = np.moveaxis(low[..., None] + (size[..., None] * steps).astype(np.intp), 1, 0)
    cells = grid[parts.image[kept, None, None], y[:, :, None], x[:, None]]
    masks: Floats = (cells == kept[:, None, None]).reshape(len(kept), -1).astype(np.float32)
    return masks


def _overlap(masks: Floats) -> Floats:
    """Intersection over union with each shape, `[N, shapes]`: its template that fits best."""
    templates = _templates()
    common = masks @ templates.T
    union = masks.sum(1, keepdims=True) + templates.sum(1) - common
    best: Floats = (common / union).reshape(len(masks), len(SHAPES), -1).max(2)
    return best


@cache
def _templates() -> Floats:
    """Mean masks of each shape, by size and blur, `[shapes * sizes * blurs, cells * cells]`.

    The examples go the detector's own way, so that what coarse pixels do to a shape is in them.
    """
    rng = np.random.default_rng(0)
    masks = []
    for shape, (low, high), blur in product(SHAPES, pairwise(_RADII), _BLURS):
        images = [
            render([Placed(shape, "black", x, y, radius)], (225, 225, 225))
            for x, y, radius in rng.uniform((30, 30, low), (34, 34, high), (_EXAMPLES, 3))
        ]
        color, _ = _painted(gaussian_filter(np.stack(images), (0, blur, blur, 0)))
        masks.append(_masks(components(color), np.arange(_EXAMPLES), color).mean(0))
    return np.stack(masks)


def _color_names(parts: Components, kept: Ints, color: ColorMap, lab: Floats) -> list[str | None]:
    """The colour of each kept component, None if it is far from that colour on the whole."""
    own = color[color > 0].astype(np.intp) - 1
    distance = np.sqrt(((lab[color > 0] - _palette()[own]) ** 2) @ np.ones(3, np.float32))
    mean = np.bincount(parts.label, distance, len(parts.area)) / np.maximum(parts.area, 1)
    of_part = np.zeros(len(parts.area), np.intp)
    of_part[parts.label] = own
    names = list(COLORS)
    return [names[of_part[i]] if mean[i] <= NO_COLOR else None for i in kept]
