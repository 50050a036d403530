"""Plots are grouped by metric, coloured by row, and complete before any script runs."""

import math
from dataclasses import replace

import pytest

from rlfactory.report.html.plots import count, fixed, interval, plots, rows_with_curves
from rlfactory.report.html.write import page
from rlfactory.report.report import Curve
from rlfactory.utils.text import plural


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
def test_an_interval_is_a_half_width_only_where_it_is_symmetric(mean, low, high, text):
    assert interval(mean, low, high, 2) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(960, "960"), (5400, "5,400"), (138240, "138 k"), (1.23e6, "1.23 M"), (None, "–")],
)
def test_count(value, text):
    assert count(value) == text


def test_plural():
    assert [plural(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


def curve(paper: float | None = None) -> Curve:
    x = [0.0, 1.0, 2.0]
    return Curve("V-GRPO", "m", x, x, [v - 1 for v in x], [v + 1 for v in x], "M", paper)


def test_a_plot_for_each_metric_and_a_colour_for_each_row(report):
    first, second = plots(report)
    assert (first.label, second.label, second.data["digits"]) == ("GenEval", "OCR", 3)
    assert [line["row"] for line in first.data["lines"]] == [0, 1]
    assert [line["row"] for line in second.data["lines"]] == [0, 1, 2]
    assert rows_with_curves(report) == [row.name for row in report.rows]


def test_rows_without_a_curve_have_no_colour(report):
    one = replace(report, curves=report.curves[1:2])
    assert rows_with_curves(one) == ["Flow-GRPO, all steps"]
    assert plots(one)[0].data["lines"][0]["row"] == 0


def test_a_curve_without_points_is_left_out(report):
    empty = replace(report.curves[0], x=[], mean=[], low=[], high=[])
    assert plots(replace(report, curves=[empty])) == []


def test_a_claim_that_is_far_off_is_named_beside_the_plot(report):
    assert plots(report)[1].far[0] == "Flow-GRPO, all steps 9.00"
    assert "Paper, outside this plot: Flow-GRPO, all steps 9.00" in page(report)


@pytest.mark.parametrize(("paper", "count"), [(2.5, 0), (90.0, 1), (None, 0)])
def test_a_near_claim_is_drawn_and_a_far_one_is_not(report, paper, count):
    (plot,) = plots(replace(report, curves=[curve(paper)]))
    assert len(plot.far) == count
    assert plot.svg.count("stroke-dasharray") == (paper == 2.5)


def test_what_is_not_finite_is_left_out(report):
    low = [1.0, math.nan, -math.inf]
    gap = Curve("V-GRPO", "m", [0.0, 1, 2], [1.0, math.nan, 2], low, [1.0, 1, 2], "M", math.nan)
    (plot,) = plots(replace(report, curves=[gap]))
    (line,) = plot.data["lines"]
    assert line["x"] == [0.0, 2]
    assert line["low"] == [1.0, None]
    assert not any(word in plot.svg for word in ("nan", "inf"))


def test_a_plot_is_described_in_words(report):
    assert plots(replace(report, curves=[curve()]))[0].spoken == (
        "M over iterations: V-GRPO from 0.0000 to 2.0000."
    )
