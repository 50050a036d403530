"""Groups of runs to a report: every number, curve and sample in its place."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlfactory.report.compared import Values, comparisons
from rlfactory.report.curves import curves
from rlfactory.report.differences import distinct
from rlfactory.report.group import Group, Member
from rlfactory.report.measure import before, best_iteration, measured
from rlfactory.report.notes import notes_of
from rlfactory.report.report import Cell, Report, ReportRow
from rlfactory.report.samples import pictures, texts
from rlfactory.report.statistics import (
    FEWEST,
    Interval,
    interquartile_interval,
    interquartile_mean,
    mean_interval,
)
from rlfactory.sweep.table import About, Column


def assemble(
    title: str,
    about: About | None,
    columns: Sequence[Column],
    groups: Sequence[Group],
    *,
    best: bool = False,
    notes: Sequence[str] = (),
) -> Report:
    """The report of rows; with `best` of each run's best evaluation instead of its last."""
    values = [_values(group, columns, best) for group in groups]
    differences = distinct([_configs(group) for group in groups])
    rows = [
        _row(group, columns, found, {key: told[i] for key, told in differences.items()})
        for i, (group, found) in enumerate(zip(groups, values, strict=True))
    ]
    named = {group.name: found for group, found in zip(groups, values, strict=True)}
    return Report(
        title=title,
        about=about,
        columns=list(columns),
        rows=rows,
        curves=curves(groups, columns),
        pictures=pictures(groups),
        texts=texts(groups),
        differences=differences,
        notes=[*notes, *notes_of(groups, columns, values, best)],
        comparisons=comparisons(columns, named),
    )


def _configs(group: Group) -> list[Mapping[str, Any]]:
    """Of a row's runs, whatever became of them; what was not trained has none."""
    runs = [] if group.untrained else [member.run for member in group.members]
    return [run.config for run in runs if run is not None]


def _values(group: Group, columns: Sequence[Column], best: bool) -> Values:
    """Each run's number, scaled, in the order of the runs."""
    found: dict[str, list[tuple[int, float]]] = {column.name: [] for column in columns}
    for member in group.counted:
        assert member.run is not None
        at = best_iteration(member.run, columns) if best else None
        for column in columns:
            value = _measured(group, member, column, at)
            if value is not None:
                found[column.name].append((member.run.seed, column.scale * value))
    return found


def _measured(group: Group, member: Member, column: Column, at: int | None) -> float | None:
    assert member.run is not None
    asked = before(column) if group.untrained else column
    first = (*member.earlier, member.run)[0]
    if asked.measure.startswith("before/"):
        return measured(first, asked)
    if asked.measure == "iterations":
        return _total(member, lambda run: run.iterations)
    return measured(member.run, asked, at)


def _row(
    group: Group,
    columns: Sequence[Column],
    values: Values,
    differs: dict[str, str],
) -> ReportRow:
    cells = {
        column.name: cell(group.claimed.get(column.name), [v for _, v in values[column.name]])
        for column in columns
    }
    trained = [] if group.untrained else group.counted
    steps = [_total(member, lambda run: run.iterations) for member in trained]
    nfe = [n for member in trained if (n := _total(member, _evaluations)) is not None]
    return ReportRow(
        name=group.name,
        cells=cells,
        steps=max(map(int, filter(None, steps)), default=None),
        nfe=sum(nfe) / len(nfe) if nfe else None,
        status=group.status,
        note=group.note,
        differs=differs,
    )


def cell(paper: float | None, values: list[float]) -> Cell:
    """The numbers of a row in a column."""
    if not values:
        return Cell(paper, None, None, None, 0, [])
    low, high = _ends(mean_interval(values))
    enough = len(values) >= FEWEST
    iqm_low, iqm_high = _ends(interquartile_interval(values) if enough else None)
    iqm = float(interquartile_mean(values))
    mean = sum(values) / len(values)
    return Cell(paper, mean, low, high, len(values), values, iqm, iqm_low, iqm_high)


def _ends(interval: Interval) -> tuple[float | None, float | None]:
    return interval or (None, None)


def _total(member: Member, count: Callable[[Any], float | None]) -> float | None:
    """Over a run and those that it goes on from; None where one is not known."""
    counts = [count(run) for run in [*member.earlier, member.run]]
    known = [n for n in counts if n is not None]
    return float(sum(known)) if len(known) == len(counts) else None


def _evaluations(run: Any) -> float | None:
    """The network's evaluations over a run."""
    series = run.series.get("nfe/total")
    return float(series[1][-1]) if series is not None else None
