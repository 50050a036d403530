"""The table as words: what each writer puts into its own marks."""

from collections.abc import Sequence
from dataclasses import dataclass

from rlfactory.report.report import Cell, Comparison, Report, ReportRow
from rlfactory.sweep.table import Column

NONE = "–"


@dataclass(frozen=True)
class Words:
    """A table of words; all but the first column of which are right-aligned, but the `left`."""

    heads: list[str]
    lines: list[list[str]]
    left: frozenset[str] = frozenset({"status", "note"})


def main_table(report: Report) -> Words:
    """Row, each column's paper and ours, n, steps, NFE, status; the paper's where it says any."""
    claimed = {c.name for c in report.columns if _is_claimed(report, c)}
    heads = ["row"]
    for column in report.columns:
        both = [f"{column.label}: paper", f"{column.label}: ours"]
        heads += both if column.name in claimed else [column.label]
    notes = ["note"] if any(row.note for row in report.rows) else []
    lines = []
    for row in report.rows:
        line = [row.name]
        for column in report.columns:
            cell = row.cells[column.name]
            line += [_number(cell.paper, column)] if column.name in claimed else []
            line.append(ours(cell, column))
        lines.append([*line, *_ends(row), *(row.note for _ in notes)])
    return Words([*heads, "n", "steps", "NFE", "status", *notes], lines)


def _is_claimed(report: Report, column: Column) -> bool:
    return any(row.cells[column.name].paper is not None for row in report.rows)


def ours(cell: Cell, column: Column) -> str:
    """The mean with half of its interval, which Student's t puts around it evenly."""
    if cell.mean is None:
        return NONE
    mean = f"{cell.mean:.{column.digits}f}"
    return mean if cell.high is None else f"{mean} ± {cell.high - cell.mean:.{column.digits}f}"


def spread_table(report: Report) -> Words | None:
    """Interquartile means with their intervals; None where every row is one run."""
    lines = [
        [row.name, column.label, str(cell.n), _number(cell.iqm, column), _between(cell, column)]
        for row in report.rows
        for column in report.columns
        if (cell := row.cells[column.name]).iqm_low is not None
    ]
    heads = ["row", "column", "n", "interquartile mean", "95 % interval"]
    return Words(heads, lines, frozenset({"column"})) if lines else None


def comparison_table(report: Report) -> Words | None:
    """Rows against the first; None where there is nothing to tell."""
    columns = {column.name: column for column in report.columns}
    lines = [_comparison(c, columns.get(c.column)) for c in report.comparisons if _tells(c)]
    heads = ["row", "against", "column", "pairs", "difference", "95 % interval"]
    heads += ["probability of improvement", "95 % interval "]
    return Words(heads, lines, frozenset({"against", "column"})) if lines else None


def difference_table(report: Report) -> Words | None:
    """The keys in which rows differ, a row's value each; None where they don't."""
    rows = [row.name for row in report.rows]
    lines = [[key, *values] for key, values in report.differences.items()]
    return Words(["key", *rows], lines, frozenset(rows)) if lines else None


def told_differences(report: Report) -> Words | None:
    """The same with a line a row, for where there is little room; None where the names say it."""
    told = [
        [row.name, ", ".join(f"{key}={value}" for key, value in row.differs.items())]
        for row in report.rows
        if any(value != NONE for value in row.differs.values())
    ]
    is_news = any(name != text for name, text in told)
    return Words(["row", "differs"], told, frozenset({"differs"})) if is_news else None


def _number(value: float | None, column: Column) -> str:
    return NONE if value is None else f"{value:.{column.digits}f}"


def _between(cell: Cell, column: Column) -> str:
    return f"{_number(cell.iqm_low, column)} … {_number(cell.iqm_high, column)}"


def _ends(row: ReportRow) -> list[str]:
    count = max((cell.n for cell in row.cells.values()), default=0)
    steps = NONE if row.steps is None else f"{row.steps:,}"
    return [str(count), steps, evaluations(row.nfe), row.status]


def evaluations(nfe: float | None) -> str:
    """A number of network evaluations, in three digits."""
    if nfe is None:
        return NONE
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if nfe >= size:
            return f"{nfe / size:.3g}{unit}"
    return f"{nfe:.0f}"


def _tells(comparison: Comparison) -> bool:
    return comparison.difference is not None or comparison.probability_low is not None


def _comparison(found: Comparison, column: Column | None) -> list[str]:
    digits = 3 if column is None else column.digits
    difference = _signed([found.difference], digits)
    interval = _signed([found.low, found.high], digits)
    chance = NONE if found.probability is None else f"{found.probability:.2f}"
    reach = [p for p in (found.probability_low, found.probability_high) if p is not None]
    return [
        found.row,
        found.other,
        "all together" if column is None else column.label,
        str(found.n) if column else NONE,
        difference,
        interval,
        chance,
        " … ".join(f"{p:.2f}" for p in reach) or NONE,
    ]


def _signed(values: Sequence[float | None], digits: int) -> str:
    known = [f"{value:+.{digits}f}" for value in values if value is not None]
    return " … ".join(known) if len(known) == len(values) else NONE
