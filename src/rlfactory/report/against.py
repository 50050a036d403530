"""A figure of one metric against another over training, such as a gold score against its proxy."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlfactory.report.curves import half_interval
from rlfactory.report.group import Group
from rlfactory.report.read import RunRecord
from rlfactory.run.figures.figure import COLORS, saved_figure
from rlfactory.run.statistics import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = "against.png"
ROOT = "sqrt:"
"""Before a metric's name: its square root, the usual axis for a divergence (arXiv 2210.10760)."""


@dataclass(frozen=True)
class TrainingPath:
    """A row's mean of one metric over that of another, with the 95 % interval of the former."""

    row: str
    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def path_of(group: Group, x: str, y: str) -> TrainingPath | None:
    """The means over a row's runs of metric `x` and `y` at the iterations that all measured both.

    A metric that begins with `sqrt:` is the square root of the one that follows. None where fewer
    than two iterations are shared.
    """
    runs = [run for run in group.runs if _name(x) in run.series and _name(y) in run.series]
    series = [run.series[_name(metric)][0] for run in runs for metric in (x, y)]
    at: Array = reduce(np.intersect1d, series) if series else np.empty(0)
    if len(at) < 2:
        return None
    across = np.stack([_values(run, x, at) for run in runs]).mean(0)
    values = np.stack([_values(run, y, at) for run in runs])
    mean, half = values.mean(0), half_interval(values)
    ends = (mean - half).tolist(), (mean + half).tolist()
    return TrainingPath(group.name, across.tolist(), mean.tolist(), *ends)


def _name(metric: str) -> str:
    return metric.removeprefix(ROOT)


def _values(run: RunRecord, metric: str, at: Array) -> Array:
    x, y = run.series[_name(metric)]
    values: Array = y[np.searchsorted(x, at)]
    return np.sqrt(values.clip(0)) if metric.startswith(ROOT) else values


def draw_against(groups: Sequence[Group], x: str, y: str, file: Path) -> bool:
    """Draw a line for each row, in the order of training, with a dot at its end.

    Vertical bars are 95 % intervals over runs. Returns whether any row measured both metrics.
    """
    paths = [path for group in groups if (path := path_of(group, x, y)) is not None]
    if paths:
        with saved_figure((6.0, 4.2), file) as figure:
            _draw(figure.subplots(), paths, x, y)
    return bool(paths)


def _draw(axes: "Axes", paths: Sequence[TrainingPath], x: str, y: str) -> None:
    for number, path in enumerate(paths):
        colour = COLORS[number % len(COLORS)]
        axes.plot(path.x, path.mean, color=colour, label=path.row)
        axes.plot(path.x[-1:], path.mean[-1:], "o", color=colour, markersize=5)
        axes.vlines(path.x, path.low, path.high, color=colour, alpha=0.3)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(fontsize=7)
