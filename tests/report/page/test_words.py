"""Numbers as the page writes them."""

import math

import pytest

from rlfactory.report.page.words import count, fixed, plural, spread
from rlfactory.report.report import Cell


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.50"), (-1.234, "\u22121.23"), (-0.001, "0.00"), (None, "–"), (math.nan, "–")],
)
def test_fixed(value, text):
    assert fixed(value, 2) == text


@pytest.mark.parametrize(
    ("mean", "low", "high", "text"),
    [
        (0.5, 0.4, 0.6, "± 0.10"),
        (0.5, 0.45, 0.7, "[0.45, 0.70]"),
        (0.5, None, None, ""),
        (None, 0.1, 0.2, ""),
        (0.5, -math.inf, math.inf, ""),
    ],
)
def test_an_interval_is_a_half_width_only_where_it_is_even(mean, low, high, text):
    assert spread(Cell(None, mean, low, high, 2, []), 2) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(960, "960"), (5400, "5,400"), (138240, "138 k"), (1.23e6, "1.23 M"), (None, "–")],
)
def test_count(value, text):
    assert count(value) == text


def test_plural():
    assert [plural(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
