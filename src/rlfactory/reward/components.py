"""Connected components of one colour, over a whole batch of pictures at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Ints = NDArray[np.intp]
ColorMap = NDArray[np.uint8]


@dataclass(frozen=True)
class Components:
    """Each foreground pixel's component; each component's picture `[N]`, area `[N]`, box `[N, 4]`.

    Boxes are left, top, right, bottom, in pixels, the last two exclusive.
    """

    label: Ints
    image: Ints
    area: Ints
    box: Ints


def components(color: ColorMap) -> Components:
    """Connect neighbours (of four) of one colour; no component has two colours or two pictures."""
    pixel = np.flatnonzero(color)
    index = np.full(color.shape, -1, np.int32)
    index.ravel()[pixel] = np.arange(len(pixel), dtype=np.int32)
    pairs = [(np.s_[:, :, :-1], np.s_[:, :, 1:]), (np.s_[:, :-1], np.s_[:, 1:])]
    joined = [(color[a] == color[b]) & (color[a] > 0) for a, b in pairs]
    one, other = (
        np.concatenate([index[pair[k]][on] for pair, on in zip(pairs, joined, strict=True)])
        for k in (0, 1)
    )
    graph = coo_array((np.ones(len(one), np.bool_), (one, other)), shape=(len(pixel),) * 2)
    count, label = connected_components(graph, directed=False)
    return _measure(pixel, label, count, color.shape)


def _measure(pixel: Ints, label: Ints, count: int, shape: tuple[int, ...]) -> Components:
    image, y, x = np.unravel_index(pixel, shape)
    box = np.zeros((count, 4), np.intp)
    box[:, :2] = max(shape)
    for column, values in enumerate((x, y)):
        np.minimum.at(box[:, column], label, values)
        np.maximum.at(box[:, column + 2], label, values + 1)
    of_part = np.zeros(count, np.intp)
    of_part[label] = image
    return Components(label, of_part, np.bincount(label, minlength=count), box)
