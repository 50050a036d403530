import math
from dataclasses import replace

import pytest

from rlfactory.report.report import Cell, Comparison, Report, ReportRow
from rlfactory.report.table import (
    comparison_table,
    difference_table,
    differences_by_row,
    fixed,
    main_table,
    ours,
    short_count,
    spread_table,
)
from rlfactory.sweep.table import Column

A, B = Column("a", "A", "eval/a", digits=2), Column("b", "B", "eval/b", digits=1)


def row(name: str, a: Cell, b: Cell, note: str = "") -> ReportRow:
    return ReportRow(name, {"a": a, "b": b}, 1200, 2.5e6, "3 done", note)


NOTHING = Cell(None, None, None, None, 0, [])
OURS = Cell(0.97, 0.951, 0.931, 0.971, 3, [0.95] * 3, 0.95, 0.93, 0.96)
REPORT = Report(
    title="t",
    about=None,
    columns=[A, B],
    rows=[row("one", OURS, NOTHING), row("two", NOTHING, replace(OURS, paper=None))],
    curves=[],
    images=[],
    texts={},
    differences={"x": ["1", "2"]},
    notes=[],
    comparisons=[
        Comparison("two", "one", "a", -0.5, -1.0, 0.25, 3, 0.25, 0.1, 0.4),
        Comparison("two", "one", "b", None, None, None, 1, 0.5, None, None),
        Comparison("two", "one", "", None, None, None, 0, 0.375, 0.2, 0.5),
    ],
)


def test_the_papers_number_stands_beside_ours_where_there_is_one() -> None:
    words = main_table(REPORT)
    assert words.heads == ["row", "A: paper", "A: ours", "B", "n", "steps", "NFE", "status"]
    assert words.lines == [
        ["one", "0.97", "0.95 ± 0.02", "–", "3", "1,200", "2.5 M", "3 done"],
        ["two", "–", "–", "1.0 ± 0.0", "3", "1,200", "2.5 M", "3 done"],
    ]


def test_a_published_column_that_is_not_measured_is_the_papers_alone() -> None:
    """What this size measures in its place is a column of its own."""
    published = Cell(0.97, None, None, None, 0, [])
    rows = [row("one", published, replace(OURS, paper=None))]
    words = main_table(replace(REPORT, columns=[replace(A, measure=""), B], rows=rows))
    assert words.heads[:3] == ["row", "A: paper", "B"]
    assert words.lines[0][:3] == ["one", "0.97", "1.0 ± 0.0"]


def test_notes_have_a_column_where_there_are_any() -> None:
    words = main_table(replace(REPORT, rows=[row("one", OURS, OURS, "fast"), *REPORT.rows]))
    assert words.heads[-1] == "note"
    assert [line[-1] for line in words.lines] == ["fast", "", ""]


def test_one_run_has_no_interval() -> None:
    assert ours(Cell(None, 0.5, None, None, 1, [0.5]), A) == "0.50"


def test_interquartile_means_are_told_where_there_are_intervals() -> None:
    words = spread_table(REPORT)
    assert words is not None
    assert words.lines[0] == ["one", "A", "3", "0.95", "0.93 … 0.96"]
    assert spread_table(replace(REPORT, rows=[row("one", NOTHING, NOTHING)])) is None


def test_comparisons_are_told_where_they_say_something() -> None:
    words = comparison_table(REPORT)
    assert words is not None
    assert words.lines == [
        ["two", "one", "A", "3", "-0.50", "-1.00 … +0.25", "0.25", "0.10 … 0.40"],
        ["two", "one", "all together", "–", "–", "–", "0.38", "0.20 … 0.50"],
    ]
    assert comparison_table(replace(REPORT, comparisons=[])) is None


def test_differences_are_a_row_a_column_or_a_row_a_line() -> None:
    wide, long = difference_table(REPORT), differences_by_row(REPORT)
    assert wide is not None
    assert long is not None
    assert (wide.heads, wide.lines) == (["key", "one", "two"], [["x", "1", "2"]])
    assert long.lines == [["one", "x=1"], ["two", "x=2"]]


def test_names_that_are_the_differences_need_no_second_table() -> None:
    rows = [row("x=1", OURS, OURS), row("x=2", OURS, OURS)]
    assert differences_by_row(replace(REPORT, rows=rows, differences={"x": ["1", "2"]})) is None
    assert difference_table(replace(REPORT, differences={})) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.50"), (-1.234, "\u22121.23"), (-0.001, "0.00"), (None, "–"), (math.nan, "–")],
)
def test_fixed(value, text):
    assert fixed(value, 2) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (960, "960"),
        (5400, "5,400"),
        (138240, "138 k"),
        (1.23e6, "1.23 M"),
        (2e9, "2 G"),
        (None, "–"),
    ],
)
def test_counts_have_about_three_digits(value: float | None, text: str) -> None:
    assert short_count(value) == text
