"""CIELAB against published values."""

import numpy as np
import pytest

from rlfactory.reward.lab import lab_colors, to_lab

# sRGB under D65, B. Lindbloom's calculator, rounded to 0.1
PUBLISHED = {
    (255, 255, 255): (100.0, 0.0, 0.0),
    (0, 0, 0): (0.0, 0.0, 0.0),
    (255, 0, 0): (53.2, 80.1, 67.2),
    (0, 255, 0): (87.7, -86.2, 83.2),
    (0, 0, 255): (32.3, 79.2, -107.9),
}


@pytest.mark.parametrize(("rgb", "lab"), PUBLISHED.items())
def test_primaries(rgb: tuple[int, int, int], lab: tuple[float, float, float]) -> None:
    np.testing.assert_allclose(to_lab(np.array([rgb]) / 255)[0], lab, atol=0.1)


def test_the_table_is_within_two_levels() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (500, 3), dtype=np.uint8)
    exact = to_lab(rgb / 255)
    nudged = [to_lab(np.clip(rgb + 2.0 * sign, 0, 255) / 255) for sign in (-1, 1)]
    room = np.abs(np.stack(nudged) - exact).max(0).max(1) + 1.5
    assert (np.abs(lab_colors(rgb) - exact).max(1) <= 2 * room).all()
