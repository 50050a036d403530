"""A plot is right as it stands, before any script runs."""

import math
import re

import pytest

from rlfactory.report.page.plot import MOST_POINTS, Panel, colour, data, draw, thinned
from rlfactory.report.report import Curve


def curve(count: int = 3, paper: float | None = None) -> Curve:
    x = [float(i) for i in range(count)]
    return Curve("a <row>", "m", x, x, [v - 1 for v in x], [v + 1 for v in x], "M", paper)


def test_a_line_with_its_band_and_the_claim_dashed():
    drawn = draw(Panel("M", 2, [curve(paper=1.5)], [4]), 0)
    assert drawn.count('data-row="4"') == 2
    assert 'class="paper c4"' in drawn
    assert re.search(r'class="line" d="M50,[\d.]+L219,[\d.]+L388,[\d.]+"', drawn)
    band = re.search(r'class="band" d="M50,[\d.]+L219,[\d.]+L388,[\d.]+L388,', drawn)
    assert band is not None
    assert "a &lt;row&gt; from 0.00 to 2.00" in drawn


def test_one_point_is_a_dot_with_its_interval():
    drawn = draw(Panel("M", 2, [curve(1)], [0]), 0)
    assert "<circle" in drawn
    assert "<path" not in drawn


def test_long_curves_are_thinned_to_true_points_with_both_ends():
    points = thinned(curve(10_000))
    assert len(points) == MOST_POINTS
    assert points[0][0] == 0
    assert points[-1] == (9999, 9999, 9998, 10000)


def test_what_is_not_finite_is_left_out():
    gap = Curve("r", "m", [0.0, 1, 2], [1.0, math.nan, 2], [1.0, math.nan, -math.inf], [1.0, 1, 2])
    line = data(Panel("M", 2, [gap], [0]))["lines"][0]
    assert line["x"] == (0.0, 2)
    assert line["low"] == [1.0, None]
    assert "nan" not in draw(Panel("M", 2, [gap], [0]), 0)


@pytest.mark.parametrize(("paper", "count"), [(2.5, 0), (90.0, 1), (None, 0)])
def test_a_claim_outside_is_named(paper, count):
    assert len(Panel("M", 2, [curve(paper=paper)], [0]).far()) == count


def test_colours_come_round_with_another_dash():
    assert colour(1) == "c1"
    assert colour(9) == "c1 again"
