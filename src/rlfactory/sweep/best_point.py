"""The best point of each row whose axes vary: a sweep over values is a search for the best ones.

A point's score is `objective`, the mean of the first column over its seeds.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.config.diff import format_value
from rlfactory.run import metrics
from rlfactory.run.folder import RunFolder
from rlfactory.sweep.folder import state_of
from rlfactory.sweep.table import Column, Job

Point = tuple[tuple[str, Any], ...]
"""The keys that vary in a row, with the values of some of its jobs."""


def best_lines(jobs: Sequence[Job], column: Column, folder: Path) -> Iterator[str]:
    """The best point of each row with several, as overrides that can be typed."""
    if column.better == "neither":
        return
    sign = -1 if column.better == "lower" else 1
    for row, points in scores_of(jobs, column, folder).items():
        known = {point: score for point, score in points.items() if not math.isnan(score)}
        if len(points) < 2 or not known:
            continue
        best = max(known, key=lambda point: sign * known[point])
        words = " ".join(f"{key}={format_value(value)}" for key, value in best)
        yield f"best of {row}: {column.label} {known[best]:.{column.digits}f}: {words}"


def scores_of(
    jobs: Sequence[Job], column: Column, folder: Path
) -> Mapping[str, Mapping[Point, float]]:
    """The score of each point of each row, over the runs of its last stage; NaN unless all of these
    are done.
    """
    begun_from = {job.after for job in jobs}
    runs: dict[str, dict[Point, list[Path]]] = {}
    for job in (job for job in jobs if job.name not in begun_from):
        point = tuple((k, v) for k, v in job.axes.items() if k not in ("seed", "stage"))
        runs.setdefault(job.row, {}).setdefault(point, []).append(folder / job.folder)
    return {
        row: {point: _mean(column, own) for point, own in points.items()}
        for row, points in runs.items()
    }


def _mean(column: Column, runs: Sequence[Path]) -> float:
    scores = [objective(run, column) if state_of(run) == "done" else math.nan for run in runs]
    return sum(scores) / len(scores)


def objective(run: Path, column: Column) -> float:
    """A column's number of one run, scaled; NaN where the run has none.

    Raises:
        FileError: its metrics can't be read.
    """
    kind, _, name = column.measure.partition("/")
    path = RunFolder(run).metrics
    lines = metrics.read(path) if path.exists() else []
    if kind == "iterations":
        return float(max((line["iteration"] or 0 for line in lines), default=0))
    key = f"eval/{name}/mean" if kind in ("eval", "before") else name
    values = [value for line in lines if (value := line.get(key)) is not None]
    if not values or kind not in ("eval", "before", "last", "max"):
        return math.nan
    window = values[-column.window :]
    of_kind = {
        "eval": values[-1],
        "before": values[0],
        "last": sum(window) / len(window),
        "max": max(values),
    }
    return float(column.scale * of_kind[kind])
