"""Colours in CIELAB, where distances are roughly as large as they look."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_BITS = 6  # kept of each channel when looking up a colour
_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)  # linear sRGB to CIE XYZ


def lab_colors(rgb: NDArray[np.uint8]) -> Floats:
    """CIELAB (D65) of sRGB bytes `[..., 3]`, from a table, to within two levels of each channel."""
    r, g, b = np.moveaxis(rgb >> (8 - _BITS), -1, 0).astype(np.int32)
    lab: Floats = np.take(_table(), (r << 2 * _BITS) | (g << _BITS) | b, axis=0)
    return lab


@cache
def _table() -> Floats:
    levels = (np.arange(1 << _BITS) + 0.5) / (1 << _BITS)
    return to_lab(np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), -1).reshape(-1, 3))


def to_lab(rgb: NDArray[np.float64]) -> Floats:
    """CIELAB (D65) of sRGB in [0, 1], `[N, 3]` (CIE 15:2004, IEC 61966-2-1)."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    ratio = linear @ _XYZ.T / _XYZ.sum(1)
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio * (29 / 6) ** 2 / 3 + 4 / 29).T
    lab: Floats = np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1).astype(np.float32)
    return lab
