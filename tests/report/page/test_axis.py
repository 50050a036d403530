"""Axes begin and end where they should, with round numbers on them."""

import random

import pytest

from rlfactory.report.page.axis import extent, tick_text, ticks


def test_ticks_are_round_few_and_within():
    draw = random.Random(0)
    for _ in range(500):
        low = draw.uniform(-1, 1) * 10 ** draw.uniform(-4, 5)
        high = low + 10 ** draw.uniform(-4, 5)
        at = ticks(low, high)
        assert 2 <= len(at) <= 5
        assert all(low - 1e-9 * abs(low) <= t <= high + 1e-9 * abs(high) for t in at)
        leading = float(f"{at[1] - at[0]:.0e}") / 10 ** int(f"{at[1] - at[0]:.0e}".split("e")[1])
        assert round(leading) in (1, 2, 5)


def test_iterations_are_whole():
    assert ticks(0, 3, whole=True) == [0, 1, 2, 3]
    assert ticks(0, 600, whole=True) == [0, 200, 400, 600]


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [(0.25, 0.05, "0.25"), (-2, 1, "\u22122"), (1200, 200, "1,200"), (2e-5, 1e-5, "2.0e\u22125")],
)
def test_tick_text(value, step, text):
    assert tick_text(value, step) == text


def test_a_wide_interval_does_not_flatten_the_curve():
    low, high = extent([0.2, 0.4], [-50.0, 60.0], [])
    assert low == pytest.approx(0.1, abs=0.03)
    assert high == pytest.approx(0.5, abs=0.03)


def test_a_near_claim_is_in_the_axis_and_a_far_one_is_not():
    assert extent([0.2, 0.4], [], [0.6])[1] > 0.6
    assert extent([0.2, 0.4], [], [0.1])[0] < 0.1
    assert extent([0.2, 0.4], [], [9.0])[1] < 0.5


def test_a_flat_curve_has_an_axis():
    low, high = extent([0.0, 0.0], [0.0], [])
    assert low < 0 < high
