"""The numbers of a row's runs in a column, with their intervals."""

from rlfactory.report.report import Cell
from rlfactory.run.statistics import (
    MIN_RUNS,
    Interval,
    interquartile_interval,
    interquartile_mean,
    mean_interval,
)


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
