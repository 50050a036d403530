"""Detector of coloured shapes in small images, by colour and outline, without a network.

Pixels that differ from the pale grey background in CIELAB are split by colour into connected
components, and each component's mask, stretched to a square, is compared with the five shapes. All
steps process the batch at once: `B` images of `H` by `W` pixels, `P` foreground pixels in row-major
order, `N` components, `C` colours.
"""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from rlfactory.prompts.ops.scenes import COLORS, SHAPES, Placed, render
from rlfactory.reward.ops.geneval_score import Detection

Ints = NDArray[np.intp]
ColorMap = NDArray[np.uint8]


@dataclass(frozen=True)
class LabelledComponents:
    """`N` components of the `P` foreground pixels of a batch, in row-major order.

    Attributes:
        label: `[P]`, the component of each foreground pixel.
        image: `[N]`, the image of each component.
        area: `[N]`, its pixels.
        box: `[N, 4]`: left, top, right, bottom in pixels, the last two exclusive.
    """

    label: Ints
    image: Ints
    area: Ints
    box: Ints


def components(color: ColorMap) -> LabelledComponents:
    """The 4-connected components of one colour in each image of `[B, H, W]`; 0 is background."""
    pixel = np.flatnonzero(color)
    index = np.full(color.shape, -1, np.int32)
    index.ravel()[pixel] = np.arange(len(pixel), dtype=np.int32)
    pairs = [(np.s_[:, :, :-1], np.s_[:, :, 1:]), (np.s_[:, :-1], np.s_[:, 1:])]
    connected = [(color[a] == color[b]) & (color[a] > 0) for a, b in pairs]
    first, second = (
        np.concatenate([index[pair[k]][edge] for pair, edge in zip(pairs, connected, strict=True)])
        for k in (0, 1)
    )
    graph = coo_array((np.ones(len(first), np.bool_), (first, second)), shape=(len(pixel),) * 2)
    count, label = connected_components(graph, directed=False)
    return _measure(pixel, label, count, color.shape)


def _measure(pixel: Ints, label: Ints, count: int, shape: tuple[int, ...]) -> LabelledComponents:
    image, y, x = np.unravel_index(pixel, shape)
    box = np.zeros((count, 4), np.intp)
    box[:, :2] = max(shape)
    for column, values in enumerate((x, y)):
        np.minimum.at(box[:, column], label, values)
        np.maximum.at(box[:, column + 2], label, values + 1)
    component_image = np.zeros(count, np.intp)
    component_image[label] = image
    return LabelledComponents(label, component_image, np.bincount(label, minlength=count), box)


Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

UNKNOWN = "unknown"
FOREGROUND = 28.0  # CIELAB distance from the background; half of that of the nearest colour, pink
NO_COLOR = 40.0  # CIELAB distance beyond which an object has none of the palette's colours
MIN_SHARE = 0.12  # of a blob's interior; smaller parts of another colour are flaws, not objects
MIN_AREA = 0.007  # of the image; the smallest star of the grammar has twice as much
MAX_SIDE = 0.75  # of the image; the largest object of the grammar has 0.47
MAX_ASPECT = 1.4  # longer side by shorter side
MIN_OVERLAP = {"circle": 0.84, "square": 0.84, "triangle": 0.78, "star": 0.63, "cross": 0.77}
"""Intersection over union, at least; few in 1,000 drawn shapes, noisy or as JPEG, have less."""
_CELLS = 16
_RADII = (6.5, 8.0, 10.0, 15.0)  # pixels; the bounds of the templates' three size classes
_BLURS = (0.0, 1.0)  # pixels
_EXAMPLES = 32  # drawn for each template
_PALEST, _DARKEST = 100.0, 76.0  # lightness L of backgrounds
_LEVEL_BITS = 6  # kept of each channel in the CIELAB table
_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)  # linear sRGB to CIE XYZ (IEC 61966-2-1)


def detect(images: NDArray[np.uint8]) -> list[list[Detection]]:
    """The objects in each image of `images` `[B, H, W, 3]`, ordered by falling overlap.

    A blob above `MIN_AREA` that fits no shape is an object of class `UNKNOWN`.
    """
    color, lab = _classify_pixels(images)
    parts = components(color)
    kept = np.flatnonzero(parts.area >= MIN_AREA * color.shape[1] * color.shape[2])
    detections: list[list[Detection]] = [[] for _ in images]
    shapes, overlap = _shapes(parts, kept, color)
    colors = _color_names(parts, kept, color, lab)
    for i in np.argsort(-overlap, kind="stable"):
        left, top, right, bottom = map(float, parts.box[kept[i]])
        detection = Detection(shapes[i], colors[i], (left, top, right, bottom))
        detections[parts.image[kept[i]]].append(detection)
    return detections


def _classify_pixels(images: NDArray[np.uint8]) -> tuple[ColorMap, Floats]:
    """Each pixel's colour `[B, H, W]` (0: background, else 1 + palette index), and its CIELAB."""
    lab = lab_colors(images)
    shade = _background(lab)
    contrast = _contrast(lab, shade[:, None, None])
    return _mostly_covered(_nearest_colors(lab, contrast > FOREGROUND), contrast, shade), lab


@cache
def _palette() -> Floats:
    return to_lab(np.array(list(COLORS.values())) / 255)


def _background(lab: Floats) -> Floats:
    """The lightness `[B]` of the pale grey background: the median over the image's rim."""
    light = lab[..., 0]
    rim = [light[:, 0], light[:, -1], light[:, 1:-1, 0], light[:, 1:-1, -1]]
    return np.median(np.concatenate(rim, axis=1), axis=1).clip(_DARKEST, _PALEST)


def _contrast(lab: Floats, shade: Floats) -> Floats:
    """CIELAB distances from a grey of lightness `shade`, which broadcasts to `lab[..., 0]`."""
    return np.sqrt((lab[..., 0] - shade) ** 2 + lab[..., 1] ** 2 + lab[..., 2] ** 2)


def _mostly_covered(color: ColorMap, contrast: Floats, shade: Floats) -> ColorMap:
    """Colours without the edge pixels that an object covers by less than half, by contrast."""
    full = _contrast(_palette(), shade[:, None])
    half = np.concatenate([np.zeros((len(full), 1), np.float32), full / 2], axis=1)
    image = np.arange(len(full))[:, None, None]
    return np.where(contrast >= half[image, color], color, 0)


def _nearest_colors(lab: Floats, foreground: Mask) -> ColorMap:
    """Each foreground pixel's colour `[B, H, W]`: 0 for the background, else 1 + palette index.

    A blob's colours are taken from its interior, since edges blend with the background; each of its
    pixels gets the nearest of these.
    """
    interior = _erode(foreground)
    pixel = np.flatnonzero(foreground)
    distance = cdist(lab.reshape(-1, 3)[pixel], _palette())
    blobs = components(foreground.astype(np.uint8))
    present = _blob_colors(blobs, interior.ravel()[pixel], distance)
    nearest = np.where(present[blobs.label], distance, np.inf).argmin(1).astype(np.uint8) + 1
    color = np.zeros(foreground.shape, np.uint8)
    color.ravel()[pixel] = nearest
    return color


def _blob_colors(blobs: LabelledComponents, interior: Mask, distance: NDArray[np.float64]) -> Mask:
    """Which colours `[N, C]` have `MIN_SHARE` of a blob's interior; at least the most common."""
    weight = np.where(interior, 1.0, 1e-3)  # the rim decides for blobs without an interior
    index = blobs.label * len(COLORS) + distance.argmin(1)
    votes = np.bincount(index, weight, len(blobs.area) * len(COLORS)).reshape(-1, len(COLORS))
    most = votes.max(1, keepdims=True)
    return (votes >= MIN_SHARE * votes.sum(1, keepdims=True)) | (votes == most)


def _erode(mask: Mask) -> Mask:
    """The pixels of a mask `[B, H, W]` whose eight neighbours are in it too."""
    result = np.zeros_like(mask)
    rows = mask[:, :-2] & mask[:, 1:-1] & mask[:, 2:]
    result[:, 1:-1, 1:-1] = rows[..., :-2] & rows[..., 1:-1] & rows[..., 2:]
    return result


def _shapes(
    parts: LabelledComponents, kept: Ints, color: ColorMap
) -> tuple[list[str], NDArray[np.float64]]:
    """The shape of each kept component, and its overlap with that shape; `UNKNOWN` has 0."""
    size = parts.box[kept, 2:] - parts.box[kept, :2]
    overlap = _overlap(_masks(parts, kept, color))
    best, names = overlap.max(1), np.array(SHAPES)[overlap.argmax(1)]
    minimum = np.array([MIN_OVERLAP[shape] for shape in SHAPES])[overlap.argmax(1)]
    known = (best >= minimum) & (size.max(1) <= MAX_ASPECT * size.min(1))
    known &= size.max(1) <= MAX_SIDE * color.shape[1]
    return np.where(known, names, UNKNOWN).tolist(), np.where(known, best, 0.0)


def _masks(parts: LabelledComponents, kept: Ints, color: ColorMap) -> Floats:
    """The kept components stretched to a square of cells, `[N, cells * cells]` of 0 and 1."""
    grid = np.full(color.shape, -1, np.int32)
    grid[color > 0] = parts.label
    low, size = parts.box[kept, :2], parts.box[kept, 2:] - parts.box[kept, :2]
    steps = (np.arange(_CELLS) + 0.5) / _CELLS
    x, y = np.moveaxis(low[..., None] + (size[..., None] * steps).astype(np.intp), 1, 0)
    cells = grid[parts.image[kept, None, None], y[:, :, None], x[:, None]]
    return (cells == kept[:, None, None]).reshape(-1, _CELLS**2).astype(np.float32)


def _overlap(masks: Floats) -> Floats:
    """Intersection over union with each shape, `[N, shapes]`: that of its best template."""
    templates = _templates()
    common = masks @ templates.T
    union = masks.sum(1, keepdims=True) + templates.sum(1) - common
    return (common / union).reshape(len(masks), len(SHAPES), len(templates) // len(SHAPES)).max(2)


@cache
def _templates() -> Floats:
    """Mean masks of each shape, by size and blur, `[shapes * sizes * blurs, cells * cells]`.

    Examples are rendered and pass through the detector, so templates have its pixel artefacts.
    """
    rng = np.random.default_rng(0)
    masks = []
    for shape, (low, high), blur in product(SHAPES, pairwise(_RADII), _BLURS):
        images = [
            render([Placed(shape, "black", x, y, radius)], (225, 225, 225))
            for x, y, radius in rng.uniform((30, 30, low), (34, 34, high), (_EXAMPLES, 3))
        ]
        color, _ = _classify_pixels(gaussian_filter(np.stack(images), (0, blur, blur, 0)))
        masks.append(_masks(components(color), np.arange(_EXAMPLES), color).mean(0))
    return np.stack(masks)


def _color_names(
    parts: LabelledComponents, kept: Ints, color: ColorMap, lab: Floats
) -> list[str | None]:
    """The colour of each kept component; None if it is far from that colour on average."""
    index = color[color > 0].astype(np.intp) - 1
    distance = np.sqrt(((lab[color > 0] - _palette()[index]) ** 2) @ np.ones(3, np.float32))
    mean = np.bincount(parts.label, distance, len(parts.area)) / np.maximum(parts.area, 1)
    component_color = np.zeros(len(parts.area), np.intp)
    component_color[parts.label] = index
    names = list(COLORS)
    return [names[component_color[i]] if mean[i] <= NO_COLOR else None for i in kept]


def lab_colors(rgb: NDArray[np.uint8]) -> Floats:
    """CIELAB (D65) of sRGB bytes `[..., 3]`, from a table, to within two levels of each channel."""
    r, g, b = np.moveaxis(rgb >> (8 - _LEVEL_BITS), -1, 0).astype(np.int32)
    return np.take(_lab_table(), (r << 2 * _LEVEL_BITS) | (g << _LEVEL_BITS) | b, axis=0)


@cache
def _lab_table() -> Floats:
    levels = (np.arange(1 << _LEVEL_BITS) + 0.5) / (1 << _LEVEL_BITS)
    return to_lab(np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), -1).reshape(-1, 3))


def to_lab(rgb: NDArray[np.float64]) -> Floats:
    """CIELAB (D65) of sRGB in [0, 1], `[N, 3]` (CIE 15:2004, IEC 61966-2-1)."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    ratio = linear @ _XYZ.T / _XYZ.sum(1)
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio * (29 / 6) ** 2 / 3 + 4 / 29).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1).astype(np.float32)
