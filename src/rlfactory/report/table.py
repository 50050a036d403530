"""A report's tables as text cells, which the writers format."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlfactory.report.report import Cell, Comparison, Report, ReportRow
from rlfactory.sweep.table import Column

NONE, MINUS = "–", "\N{MINUS SIGN}"


@dataclass(frozen=True)
class TextTable:
    """A table of text cells.

    The first column and those whose heads are in `left` are left-aligned, the others right-aligned.
    """

    heads: list[str]
    lines: list[list[str]]
    left: frozenset[str] = frozenset({"status", "note"})

    @property
    def sides(self) -> str:
        """`l` or `r` for each column."""
        return "".join("l" if i == 0 or h in self.left else "r" for i, h in enumerate(self.heads))


def main_table(report: Report) -> TextTable:
    """The main table: each column with the paper's number, where there is any, and ours.

    A claimed column that this size doesn't measure has the paper's number alone.
    """
    cells = [row.cells for row in report.rows]
    claimed = {
        c.name for c in report.columns if any(own[c.name].paper is not None for own in cells)
    }
    measured = {c.name for c in report.columns if c.measure or c.name not in claimed}
    heads = ["row"]
    for column in report.columns:
        heads += [f"{column.label}: paper"] if column.name in claimed else []
        ours_head = f"{column.label}: ours" if column.name in claimed else column.label
        heads += [ours_head] if column.name in measured else []
    notes = ["note"] if any(row.note for row in report.rows) else []
    lines = []
    for row in report.rows:
        line = [row.name]
        for column in report.columns:
            cell = row.cells[column.name]
            line += [joined([cell.paper], f".{column.digits}f")] if column.name in claimed else []
            line += [ours(cell, column)] if column.name in measured else []
        lines.append([*line, *_ends(row), *(row.note for _ in notes)])
    return TextTable([*heads, "n", "steps", "NFE", "status", *notes], lines)


def ours(cell: Cell, column: Column) -> str:
    """The mean ± half of its interval, which is symmetric."""
    if cell.mean is None:
        return NONE
    mean = f"{cell.mean:.{column.digits}f}"
    return mean if cell.high is None else f"{mean} ± {cell.high - cell.mean:.{column.digits}f}"


def category_tables(report: Report) -> dict[str, TextTable]:
    """The table of each score by category of prompts, by its title."""
    tables = {}
    for score in report.by_category:
        lines = [
            [row, *(ours(cells[name], score.column) for name in [*score.categories, ""])]
            for row, cells in score.rows.items()
        ]
        heads = ["row", *score.categories, "all"]
        tables[f"{score.column.label} by category of prompts"] = TextTable(heads, lines)
    return tables


def spread_table(report: Report) -> TextTable | None:
    """Interquartile means with their intervals; None where no row has enough runs."""
    lines = [
        [
            *(row.name, column.label, str(cell.n)),
            joined([cell.iqm], f".{column.digits}f"),
            joined([cell.iqm_low, cell.iqm_high], f".{column.digits}f"),
        ]
        for row in report.rows
        for column in report.columns
        if (cell := row.cells[column.name]).iqm_low is not None
    ]
    heads = ["row", "column", "n", "interquartile mean", "95 % interval"]
    return TextTable(heads, lines, frozenset({"column"})) if lines else None


def comparison_table(report: Report) -> TextTable | None:
    """Rows compared with the first one; None where there are too few runs for any interval."""
    columns = {column.name: column for column in report.columns}
    lines = [
        _comparison(c, columns.get(c.column))
        for c in report.comparisons
        if c.difference is not None or c.probability_low is not None
    ]
    heads = ["row", "against", "column", "pairs", "difference", "95 % interval"]
    heads += ["probability of improvement", "95 % interval "]
    return TextTable(heads, lines, frozenset({"against", "column"})) if lines else None


def difference_table(report: Report) -> TextTable | None:
    """The keys in which rows differ, a column for each row; None where rows don't differ."""
    rows = [row.name for row in report.rows]
    lines = [[key, *values] for key, values in report.differences.items()]
    return TextTable(["key", *rows], lines, frozenset(rows)) if lines else None


def differences_by_row(report: Report) -> TextTable | None:
    """The same with one line per row, for the terminal; None where the rows' names say it all."""
    values = {
        row.name: [own[i] for own in report.differences.values()]
        for i, row in enumerate(report.rows)
    }
    lines = [
        [name, ", ".join(f"{k}={v}" for k, v in zip(report.differences, own, strict=True))]
        for name, own in values.items()
        if {*own} - {NONE}
    ]
    is_news = any(name != text for name, text in lines)
    return TextTable(["row", "differs"], lines, frozenset({"differs"})) if is_news else None


def joined(values: Sequence[float | None], form: str) -> str:
    """A number, or the ends of an interval, in a format; a dash where they are not all known."""
    known = [format(value, form) for value in values if value is not None]
    return " … ".join(known) if known and len(known) == len(values) else NONE


def _ends(row: ReportRow) -> list[str]:
    count = max((cell.n for cell in row.cells.values()), default=0)
    steps = NONE if row.steps is None else f"{row.steps:,}"
    return [str(count), steps, short_count(row.nfe), row.status]


def fixed(value: float | None, digits: int) -> str:
    """That many decimals, with a typographic minus; a dash for an unknown number."""
    if value is None or math.isnan(value):
        return NONE
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", MINUS)


def short_count(value: float | None) -> str:
    """A number of things in about three digits: 960, 5,400, 138 k, 1.2 M."""
    if value is None or math.isnan(value):
        return NONE
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(size, 1e4):
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}"


def _comparison(comparison: Comparison, column: Column | None) -> list[str]:
    signed = f"+.{3 if column is None else column.digits}f"
    return [
        comparison.row,
        comparison.other,
        "all together" if column is None else column.label,
        str(comparison.n) if column else NONE,
        joined([comparison.difference], signed),
        joined([comparison.low, comparison.high], signed),
        joined([comparison.probability], ".2f"),
        joined([comparison.probability_low, comparison.probability_high], ".2f"),
    ]
