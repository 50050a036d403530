"""Curves are grouped by metric and coloured by row."""

from dataclasses import replace

from rlfactory.report.page.curves import coloured, curves, panels


def test_a_panel_for_each_metric_and_a_colour_for_each_row(report):
    first, second = panels(report)
    assert (first.label, first.rows) == ("GenEval", [0, 1])
    assert (second.label, second.rows, second.digits) == ("OCR", [0, 1, 2], 3)
    assert coloured(report) == [row.name for row in report.rows]


def test_rows_without_a_curve_have_no_colour(report):
    one = replace(report, curves=report.curves[1:2])
    assert coloured(one) == ["Flow-GRPO, all steps"]
    assert panels(one)[0].rows == [0]


def test_a_curve_of_nothing_is_no_curve(report):
    empty = replace(report.curves[0], x=[], mean=[], low=[], high=[])
    assert panels(replace(report, curves=[empty])) == []


def test_a_claim_that_is_far_off_is_said(report):
    assert "Paper, outside this plot: Flow-GRPO, all steps 9.00" in curves(report)
