from dataclasses import replace

import pytest

from rlfactory.report.report import Cell, Report, ReportRow
from rlfactory.report.report_tables import (
    best_row,
    difference_table,
    main_table,
    ours,
    spread_table,
)
from rlfactory.report.text_table import short_count
from rlfactory.sweep.table import Column

A, B = Column("a", "A", "eval/a", digits=2), Column("b", "B", "eval/b", digits=1)


def row(name: str, a: Cell, b: Cell, note: str = "") -> ReportRow:
    return ReportRow(name, {"a": a, "b": b}, 1200, 2.5e6, "3 done", note)


NOTHING = Cell()
OURS = Cell(0.97, [0.943, 0.951, 0.959])
REPORT = Report(
    title="t",
    about=None,
    columns=[A, B],
    rows=[row("one", OURS, NOTHING), row("two", NOTHING, replace(OURS, paper=None))],
    curves=[],
    images=[],
    texts={},
    notes=[],
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
    published = Cell(0.97)
    rows = [row("one", published, replace(OURS, paper=None))]
    words = main_table(replace(REPORT, columns=[replace(A, measure=""), B], rows=rows))
    assert words.heads[:3] == ["row", "A: paper", "B"]
    assert words.lines[0][:3] == ["one", "0.97", "1.0 ± 0.0"]


def test_notes_have_a_column_where_there_are_any() -> None:
    words = main_table(replace(REPORT, rows=[row("one", OURS, OURS, "fast"), *REPORT.rows]))
    assert words.heads[-1] == "note"
    assert [line[-1] for line in words.lines] == ["fast", "", ""]


def test_one_run_has_no_interval() -> None:
    assert ours(Cell(None, [0.5]), A) == "0.50"


@pytest.mark.parametrize("value", [0.22, 0.7, 0.123])
def test_equal_numbers_have_a_spread_of_zero_without_a_sign(value: float) -> None:
    for count in range(2, 20):  # in some of these numbers numpy's mean differs from Python's
        assert ours(Cell(None, [value] * count), A) == f"{value:.2f} ± 0.00"


def test_interquartile_means_are_told_where_there_are_intervals() -> None:
    words = spread_table(REPORT.rows, REPORT.columns)
    assert words is not None
    assert words.lines[0] == ["one", "A", "3", "0.95", "0.94 … 0.96"]
    assert spread_table([row("one", NOTHING, NOTHING)], REPORT.columns) is None


def test_few_keys_go_across_and_many_go_down() -> None:
    few = difference_table(["one", "two"], {"x": ["1", "2"]})
    many = difference_table(["one", "two"], {key: ["1", "2"] for key in "xyz"})
    assert few is not None
    assert many is not None
    assert (few.heads, few.lines) == (["row", "x"], [["one", "1"], ["two", "2"]])
    assert (many.heads, many.lines[0]) == (["key", "one", "two"], ["x", "1", "2"])
    assert difference_table(["one"], {}) is None


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


def repeated(report: Report, column: str, count: int = 3) -> list[ReportRow]:
    """The rows as if each number were of `count` runs."""
    cells = [Cell(None, row.cells[column].values[:1] * count) for row in report.rows]
    return [replace(r, cells={column: c}) for r, c in zip(report.rows, cells, strict=True)]


def test_the_best_follows_the_columns_sense(report: Report) -> None:
    geneval, _, kl = report.columns
    rows = repeated(report, "geneval")
    assert best_row(geneval, rows) == "V-GRPO"
    assert best_row(kl, repeated(report, "kl")) == "Flow-GRPO, all steps"
    assert best_row(replace(geneval, better="neither"), rows) is None
    assert best_row(replace(geneval, better="declared"), rows) is None
    assert best_row(geneval, rows[:1]) is None


def test_below_three_runs_a_row_there_is_no_winner(report: Report) -> None:
    geneval = report.columns[0]
    assert [row.cells["geneval"].n for row in report.rows] == [2, 1, 0]
    assert best_row(geneval, report.rows) is None
    assert best_row(geneval, repeated(report, "geneval", 2)) is None
    three = repeated(report, "geneval")
    assert best_row(geneval, [three[0], report.rows[1]]) is None
