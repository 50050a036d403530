"""The cells of a table: means of a row's runs with intervals, also by category of prompts."""

from collections.abc import Iterable, Sequence

from rlfactory.report.curves import measured_over_stages
from rlfactory.report.group import Group
from rlfactory.report.read import RunRecord
from rlfactory.report.report import Cell, ScoreByCategory
from rlfactory.report.statistics import (
    MIN_RUNS,
    Interval,
    interquartile_interval,
    interquartile_mean,
    mean_interval,
)
from rlfactory.sweep.table import Column

NO_CATEGORIES = ("mean", "diversity", "kl")
"""What else stands below `eval/NAME/`; the last two where a prompt set has the name of a score."""


def scores_by_category(groups: Sequence[Group], columns: Sequence[Column]) -> list[ScoreByCategory]:
    """The first score with categories of each prompt set, of all rows.

    Rows also have their scores before training, unless the table has rows for that.
    """
    runs = [run for group in groups for run in group.runs]
    found: dict[str, ScoreByCategory] = {}
    for column in columns:
        kind, _, score = column.measure.partition("/")
        prompt_set = score.rpartition("/")[0]
        names = categories(score, runs) if kind == "eval" and prompt_set not in found else []
        if names:
            found[prompt_set] = _of_score(score, column, names, groups)
    return [*found.values()]


def categories(score: str, runs: Iterable[RunRecord]) -> list[str]:
    """The categories that runs have measured a score in, in the order of the evaluation."""
    place = f"eval/{score}/"
    names = [n.removeprefix(place) for run in runs for n in run.series if n.startswith(place)]
    return [n for n in dict.fromkeys(names) if "/" not in n and n not in NO_CATEGORIES]


def _of_score(
    score: str, column: Column, names: Sequence[str], groups: Sequence[Group]
) -> ScoreByCategory:
    rows: dict[str, dict[str, Cell]] = {}
    has_before = any(group.untrained for group in groups)
    for group in groups:
        kinds = {group.name: "before" if group.untrained else "eval"}
        if not has_before:
            kinds = {f"{group.name}, before": "before", **kinds}
        rows |= {row: _cells(group, kind, score, column, names) for row, kind in kinds.items()}
    known = {row: cells for row, cells in rows.items() if any(c.n for c in cells.values())}
    return ScoreByCategory(column, [*names], known)


def _cells(
    group: Group, kind: str, score: str, column: Column, names: Sequence[str]
) -> dict[str, Cell]:
    """A row's numbers in each category, and over all prompts by the empty name."""
    measures = {name: Column(name, name, f"{kind}/{score}/{name}") for name in names}
    measures[""] = Column("", "", f"{kind}/{score}")
    cells = {}
    for name, measure in measures.items():
        values = [measured_over_stages(member, measure) for member in group.counted]
        cells[name] = cell(None, [column.scale * value for value in values if value is not None])
    return cells


def cell(paper: float | None, values: list[float]) -> Cell:
    """A row's numbers in a column: mean, interquartile mean, and their intervals."""
    if not values:
        return Cell(paper, None, None, None, 0, [])
    low, high = ends(mean_interval(values))
    enough = len(values) >= MIN_RUNS
    iqm_low, iqm_high = ends(interquartile_interval(values) if enough else None)
    iqm = float(interquartile_mean(values))
    mean = sum(values) / len(values)
    return Cell(paper, mean, low, high, len(values), values, iqm, iqm_low, iqm_high)


def ends(interval: Interval) -> tuple[float | None, float | None]:
    """The ends of an interval, None where there is none."""
    return interval or (None, None)
