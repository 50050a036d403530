"""A figure of one metric against another over training, such as a gold score against its proxy."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlfactory.config.problems import PlanError, Problem
from rlfactory.report.report import Curve
from rlfactory.run.figures.figure import COLORS, saved_figure

FILE = "against.png"
ROOT = "sqrt:"
"""Before a metric's name: its square root, the usual axis for a divergence (arXiv 2210.10760)."""

Path2D = tuple[str, list[float], list[float], list[float], list[float]]
"""A row, its x and y over training, and the ends of the 95 % intervals of y."""


def paths_of(curves: Sequence[Curve], x: str, y: str) -> list[Path2D]:
    """Each row's mean of metric `y` over that of `x`, at the iterations that have both.

    Raises:
        PlanError: no row has both.
    """
    by_name = {(curve.metric, curve.row): curve for curve in curves}
    rows = dict.fromkeys(curve.row for curve in curves)
    name = x.removeprefix(ROOT)
    pairs = [(row, by_name.get((name, row)), by_name.get((y, row))) for row in rows]
    paths = []
    for row, across, up in pairs:
        if across is None or up is None:
            continue
        _, i, j = np.intersect1d(across.x, up.x, return_indices=True)
        means = np.array(across.mean)[i]
        along = np.sqrt(means.clip(0)) if x.startswith(ROOT) else means
        ends = (np.array(values)[j].tolist() for values in (up.mean, up.low, up.high))
        paths.append((row, along.tolist(), *ends))
    if not paths:
        known = ", ".join(dict.fromkeys(curve.metric for curve in curves))
        message = f"no row has curves of both {name} and {y}; there are {known}"
        raise PlanError([Problem("--against", message)])
    return paths


def draw_against(curves: Sequence[Curve], x: str, y: str, file: Path) -> Path:
    """Draw a line for each row in the order of training, with a dot at its end.

    Vertical bars are 95 % intervals over runs.
    """
    with saved_figure((6.4, 4.4), file) as figure:
        axes = figure.subplots()
        for number, (row, along, mean, low, high) in enumerate(paths_of(curves, x, y)):
            colour = COLORS[number % len(COLORS)]
            axes.plot(along, mean, color=colour, label=row)
            axes.plot(along[-1:], mean[-1:], "o", color=colour, markersize=5)
            axes.vlines(along, low, high, color=colour, alpha=0.3)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.legend(fontsize=7)
    return file
