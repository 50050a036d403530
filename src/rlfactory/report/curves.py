"""Training curves of a table's rows, each the mean over a row's runs."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import product

import numpy as np

from rlfactory.report.labels import metric_name
from rlfactory.report.measure import metric_of
from rlfactory.report.read import RunRecord, Series, prompt_scores
from rlfactory.report.report import Curve
from rlfactory.report.run_groups import Group
from rlfactory.report.statistics import Array, bootstrap_interval, t_quantile
from rlfactory.sweep.table import Column

MOST_POINTS = 200
_REWARDS = 2
_RESAMPLES = 1000  # of a figure's intervals
_SCORE = re.compile(r"eval/(.+)/mean")


def curves(groups: Sequence[Group], columns: Sequence[Column]) -> list[Curve]:
    """The curves of all panels: those of the columns, of training rewards, and of the KL.

    Columns that read one metric, such as its last value and its mean over the last ones, share a
    panel, which has the metric's own name.
    """
    trained = [group for group in groups if group.runs and not group.untrained]
    drawn = [c for c in columns if c.measure.partition("/")[0] in ("eval", "last", "max")]
    readers: dict[tuple[str, float], list[Column]] = {}
    for column in drawn:
        metric = column.measure.partition("/")[2]
        readers.setdefault((metric, column.scale), []).append(column)
    titled = [own[0] if len(own) == 1 else replace(own[0], label="") for own in readers.values()]
    column_curves = []
    for column, group in product(titled, trained):
        metric = next((m for run in group.runs if (m := metric_of(run, column))), "")
        paper = group.claimed.get(column.name)
        if curve := averaged(group.runs, metric, group.name, column.label, column.scale, paper):
            column_curves.append(curve)
    shown = {curve.metric for curve in column_curves}
    # metrics of training that no column reports
    names = dict.fromkeys(name for group in trained for run in group.runs for name in run.series)
    rewards = [name for name in names if re.fullmatch(r"reward/.+/mean", name)][:_REWARDS]
    others = [name for name in (*rewards, "kl/reference") if name not in shown]
    found = [averaged(group.runs, name, group.name) for name in others for group in trained]
    return column_curves + [curve for curve in found if curve is not None]


def averaged(
    runs: Sequence[RunRecord],
    metric: str,
    row: str,
    label: str = "",
    scale: float = 1.0,
    paper: float | None = None,
) -> Curve | None:
    """The mean of a metric over runs, at the iterations at which all of them measured it.

    Its interval is over runs; that of a single run's evaluations is over their prompts. Runs
    without the metric are left out. None where fewer than two iterations are shared.
    """
    measuring = [run for run in runs if metric in run.series]
    series = [run.series[metric] for run in measuring]
    curve = mean_curve(series, metric, row, label or metric_name(metric), scale, paper)
    score = _SCORE.fullmatch(metric)
    if curve is None or score is None or len(measuring) > 1:
        return curve
    found = [prompt_scores(measuring[0], score[1], int(x)) for x in curve.x]
    return with_intervals(curve, [scale * own[1] if own else None for own in found])


def with_intervals(curve: Curve, values: Sequence[Array | None]) -> Curve:
    """A curve with the bootstrap interval of each mean over these `values`, those of its prompts.

    The mean itself where they give none.
    """
    found = np.array(
        [bootstrap_interval([] if y is None else y, resamples=_RESAMPLES) for y in values]
    )
    low, high = np.where(np.isnan(found), np.array(curve.mean)[:, None], found).T.tolist()
    return replace(curve, low=low, high=high)


def mean_curve(
    series: Sequence[Series],
    metric: str,
    row: str,
    label: str,
    scale: float = 1.0,
    paper: float | None = None,
) -> Curve | None:
    """The mean of several series at the points that all of them have; None below two points."""
    if not series:
        return None
    shared: Array = reduce(np.intersect1d, [x for x, _ in series])
    if len(shared) < 2:
        return None
    at = thinned(shared)
    values = scale * np.stack([y[np.searchsorted(x, at)] for x, y in series])
    mean, half, count = values.mean(0), np.zeros(len(at)), len(series)
    if count > 1:
        half = t_quantile(count - 1) * values.std(0, ddof=1) / np.sqrt(count)
    low, high = (mean - half).tolist(), (mean + half).tolist()
    return Curve(row, metric, at.tolist(), mean.tolist(), low, high, label, paper)


def thinned(x: Array) -> Array:
    """At most `MOST_POINTS` of the iterations, evenly spaced, the last one included."""
    step = -(-len(x) // MOST_POINTS)
    return x[::-1][::step][::-1]
