"""A report's tables as text cells, in the order in which all of its forms show them."""

from collections.abc import Mapping, Sequence

from rlfactory.report.claims import claim_sections
from rlfactory.report.leaderboard import leaderboard_sections
from rlfactory.report.report import Cell, Report, ReportRow
from rlfactory.report.statistics import MIN_RUNS
from rlfactory.report.text_table import NONE, Section, TextTable, joined, short_count
from rlfactory.sweep.table import Column


def sections(report: Report) -> list[Section]:
    """The tables below the main one."""
    special = [*leaderboard_sections(report.entries), *claim_sections(report.claims)]
    return [*special, *report.tables]


def main_table(report: Report) -> TextTable:
    """The main table: each column with the paper's number, where there is any, and ours.

    A claimed column that this size doesn't measure has the paper's number alone.
    """
    cells = [row.cells for row in report.rows]
    claimed = {
        c.name for c in report.columns if any(own[c.name].paper is not None for own in cells)
    }
    heads, lines, strong = ["row"], [[row.name] for row in report.rows], set()
    for column in report.columns:
        own = [cell[column.name] for cell in cells]
        if column.name in claimed:
            heads.append(f"{column.label}: paper")
            for line, cell in zip(lines, own, strict=True):
                line.append(joined([cell.paper], f".{column.digits}f"))
        if column.measure or column.name not in claimed:
            best = best_row(column, report.rows)
            strong |= {(i, len(heads)) for i, row in enumerate(report.rows) if row.name == best}
            heads.append(f"{column.label}: ours" if column.name in claimed else column.label)
            for line, cell in zip(lines, own, strict=True):
                line.append(ours(cell, column))
    notes = ["note"] if any(row.note for row in report.rows) else []
    for line, row in zip(lines, report.rows, strict=True):
        count = max((cell.n for cell in row.cells.values()), default=0)
        steps = NONE if row.steps is None else f"{row.steps:,}"
        line += [str(count), steps, short_count(row.nfe), row.status]
        line += [row.note] * len(notes)
    heads += ["n", "steps", "NFE", "status", *notes]
    return TextTable(heads, lines, strong=frozenset(strong))


def ours(cell: Cell, column: Column) -> str:
    """The mean ± half of its interval, which is symmetric."""
    if cell.mean is None:
        return NONE
    mean, interval = f"{cell.mean:.{column.digits}f}", cell.interval
    # not from the mean, which rounds otherwise: equal values would have ± -0.000
    return f"{mean} ± {(interval[1] - interval[0]) / 2:.{column.digits}f}" if interval else mean


def best_row(column: Column, rows: Sequence[ReportRow]) -> str | None:
    """The row whose mean is the best of several.

    None where neither more nor less is better, and where a row has fewer than `MIN_RUNS` runs:
    those show no winner.
    """
    cells = {row.name: row.cells[column.name] for row in rows}
    known = {name: cell.mean for name, cell in cells.items() if cell.mean is not None}
    pick = {"higher": max, "lower": min}.get(column.better)
    if pick is None or len(set(known.values())) < 2 or min(cells[n].n for n in known) < MIN_RUNS:
        return None
    return pick(known, key=lambda name: known[name])


def spread_table(rows: Sequence[ReportRow], columns: Sequence[Column]) -> TextTable | None:
    """Interquartile means with their intervals; None where no row has enough runs."""
    lines = [
        [
            *(row.name, column.label, str(cell.n)),
            joined([cell.iqm], f".{column.digits}f"),
            joined(cell.iqm_interval, f".{column.digits}f"),
        ]
        for row in rows
        for column in columns
        if (cell := row.cells[column.name]).iqm_interval
    ]
    heads = ["row", "column", "n", "interquartile mean", "95 % interval"]
    return TextTable(heads, lines, frozenset({"column"})) if lines else None


def difference_table(
    rows: Sequence[str], differences: Mapping[str, Sequence[str]]
) -> TextTable | None:
    """The keys in which rows differ, each with a value per row; None where rows don't differ.

    Rows go down and keys across, or the other way round where that is less wide.
    """
    if not differences:
        return None
    if len(differences) > len(rows):
        lines = [[key, *values] for key, values in differences.items()]
        return TextTable(["key", *rows], lines, frozenset(rows))
    values = zip(*differences.values(), strict=True)
    lines = [[row, *own] for row, own in zip(rows, values, strict=True)]
    return TextTable(["row", *differences], lines, frozenset(differences))
