"""Rows against the first one that was run: differences by seed, and who wins how often."""

from collections.abc import Mapping, Sequence

import numpy as np

from rlfactory.report.report import Comparison
from rlfactory.report.statistics import (
    FEWEST,
    improvement_interval,
    paired_difference,
    probability_of_improvement,
)
from rlfactory.sweep.table import Column

Values = dict[str, list[tuple[int, float]]]
"""By column, the seed and the number of each run."""


def comparisons(columns: Sequence[Column], rows: Mapping[str, Values]) -> list[Comparison]:
    """Every row against the first that has numbers, by column; of several columns also together."""
    judged = [column for column in columns if column.better != "neither"]
    first = next((name for name, values in rows.items() if any(values.values())), None)
    if first is None:
        return []
    found = []
    for name, values in rows.items():
        shared = [c for c in judged if values[c.name] and rows[first][c.name]]
        if name == first or not shared:
            continue
        found += [_in_column(column, name, values, first, rows[first]) for column in shared]
        if len(shared) > 1:
            found.append(_overall(shared, name, values, first, rows[first]))
    return found


def _in_column(column: Column, row: str, values: Values, other: str, others: Values) -> Comparison:
    ours, theirs = dict(values[column.name]), dict(others[column.name])
    seeds = [seed for seed in ours if seed in theirs]
    difference, interval = None, None
    if len(seeds) > 1:
        pairs = [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
        difference, interval = paired_difference(*pairs)
    low, high = interval or (None, None)
    chance = _chance([column], values, others)
    return Comparison(row, other, column.name, difference, low, high, len(seeds), *chance)


def _overall(
    columns: Sequence[Column], row: str, values: Values, other: str, others: Values
) -> Comparison:
    return Comparison(row, other, "", None, None, None, 0, *_chance(columns, values, others))


def _chance(
    columns: Sequence[Column], values: Values, others: Values
) -> tuple[float, float | None, float | None]:
    """The probability of improvement, and its interval."""
    ours, theirs = ([_upwards(column, v) for column in columns] for v in (values, others))
    enough = min(map(len, [*ours, *theirs])) >= FEWEST
    low, high = (improvement_interval(ours, theirs) if enough else None) or (None, None)
    return float(probability_of_improvement(ours, theirs)), low, high


def _upwards(column: Column, values: Values) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A column's numbers, turned so that more is better."""
    sign = -1.0 if column.better == "lower" else 1.0
    return np.array([sign * value for _, value in values[column.name]])
