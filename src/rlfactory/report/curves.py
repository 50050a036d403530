"""The course of training of a row: the mean over its runs, and how sure it is."""

from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np

from rlfactory.report.group import Group
from rlfactory.report.measure import metric_of
from rlfactory.report.read import Run
from rlfactory.report.report import Curve
from rlfactory.report.statistics import Array, t_quantile
from rlfactory.sweep.table import Column

MOST_POINTS = 200
_REWARDS = 2


def curves(groups: Sequence[Group], columns: Sequence[Column]) -> list[Curve]:
    """A panel's curves after the other's: the columns', training rewards' and the KL's."""
    trained = [group for group in groups if group.runs and not group.untrained]
    drawn = [c for c in columns if c.measure.partition("/")[0] in ("eval", "last", "max")]
    found = [curve for column in drawn for group in trained if (curve := _of(group, column))]
    shown = {curve.metric for curve in found}
    others = [name for name in _others(trained) if name not in shown]
    return found + [
        curve
        for name in others
        for group in trained
        if (curve := averaged(group.runs, name, group.name)) is not None
    ]


def _of(group: Group, column: Column) -> Curve | None:
    metric = next((m for run in group.runs if (m := metric_of(run, column))), None)
    if metric is None:
        return None
    paper = group.claimed.get(column.name)
    return averaged(group.runs, metric, group.name, column.label, column.scale, paper)


def _others(groups: Iterable[Group]) -> list[str]:
    """Metrics of training that no column reports."""
    names = dict.fromkeys(name for group in groups for run in group.runs for name in run.series)
    rewards = [name for name in names if name.startswith("reward/")][:_REWARDS]
    return [*rewards, *(name for name in ("kl/reference",) if name in names)]


def averaged(
    runs: Sequence[Run],
    metric: str,
    row: str,
    label: str = "",
    scale: float = 1.0,
    paper: float | None = None,
) -> Curve | None:
    """A metric over the iterations at which all runs that have it measured it; None without two."""
    series = [run.series[metric] for run in runs if metric in run.series]
    if not series:
        return None
    shared: Array = reduce(np.intersect1d, [x for x, _ in series])
    if len(shared) < 2:
        return None
    at = thinned(shared)
    values = scale * np.stack([y[np.searchsorted(x, at)] for x, y in series])
    mean, reach = values.mean(0), _reach(values)
    low, high = (mean - reach).tolist(), (mean + reach).tolist()
    return Curve(row, metric, at.tolist(), mean.tolist(), low, high, label or metric, paper)


def _reach(values: Array) -> Array:
    """Half of the 95 % interval over `[runs, N]`; nothing of one run."""
    count = len(values)
    if count < 2:
        return np.zeros(values.shape[1])
    spread: Array = values.std(0, ddof=1)
    reach: Array = t_quantile(count - 1) * spread / np.sqrt(count)
    return reach


def thinned(x: Array) -> Array:
    """Some of the iterations, evenly, the last among them."""
    step = -(-len(x) // MOST_POINTS)
    return x[::-1][::step][::-1]
