"""Numbers of runs in the table's columns, what is better of them, and training curves of rows."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import Any, Literal

import numpy as np

from rlfactory.config.memory.estimate import traits_of
from rlfactory.config.nfe import passes_per_sample
from rlfactory.report.group import Group, Member
from rlfactory.report.labels import metric_name
from rlfactory.report.read import RunRecord, Series, prompt_scores
from rlfactory.report.report import Curve
from rlfactory.report.statistics import Array, drawn_interval, t_quantile
from rlfactory.sweep.table import Column


def metrics_of(columns: Iterable[Column]) -> list[str]:
    """The metrics that columns need besides evaluations, which are always read."""
    parts = [column.measure.partition("/") for column in columns]
    return [name for kind, _, name in parts if kind in ("last", "max")]


def measured(run: RunRecord, column: Column) -> float | None:
    """A run's unscaled number in a column; None where it has none."""
    kind, _, name = column.measure.partition("/")
    if kind == "iterations":
        return float(run.iterations)
    if kind == "mean":
        return mean_of_scores(run, name)
    if kind == "before" and name.startswith("mean/"):
        return mean_of_scores(run, name.removeprefix("mean/"), is_before=True)
    if kind == "plan":
        return planned_passes([run], name)
    metric = metric_of(run, column)
    if metric is None:
        return None
    x, y = run.series[metric]
    if kind == "eval":
        return float(y[-1])
    if kind == "before":
        return float(y[0]) if x[0] == 0 else None
    return float(y.max() if kind == "max" else y[-column.window :].mean())


def measured_over_stages(member: Member, column: Column) -> float | None:
    """A member's unscaled number in a column, over all of its stages where that makes sense."""
    stages = member.stages
    if column.measure.startswith("before/"):
        return measured(stages[0], column)
    if column.measure.startswith("plan/"):
        return planned_passes(stages, column.measure.removeprefix("plan/"))
    if column.measure == "iterations":
        return float(sum(stage.iterations for stage in stages))
    return measured(stages[-1], column)


def metric_of(run: RunRecord, column: Column) -> str | None:
    """The name of the metric that a column reads; None where the run has not measured it."""
    kind, _, name = column.measure.partition("/")
    # a score has a mean; diversity, KL and a category's score are numbers themselves
    evaluated = [f"eval/{name}/mean", f"eval/{name}"]
    names = evaluated if kind in ("eval", "before") else [name]
    return next((name for name in names if name in run.series), None)


def before(column: Column) -> Column:
    """The column that reads the same evaluation before training.

    A column about training itself measures nothing then.
    """
    kind, _, name = column.measure.partition("/")
    if kind == "mean":
        return replace(column, measure=f"before/mean/{name}")
    return replace(column, measure=f"before/{name}" if kind in ("eval", "before") else "")


Better = Literal["higher", "lower", "neither"]


def scores_of(runs: Sequence[RunRecord]) -> list[str]:
    """The evaluation scores that all runs have."""
    first = [name for name in runs[0].series if name.startswith("eval/") and name.endswith("/mean")]
    shared = [name for name in first if all(name in run.series for run in runs)]
    return [name.removeprefix("eval/").removesuffix("/mean") for name in shared]


def declared(score: str, runs: Sequence[RunRecord]) -> Better:
    """What is better of a score: as all runs say it; unknown scores are not judged.

    Runs of earlier versions say nothing: their first score trains, so higher is better.
    """
    trained = {True: "higher", False: None}
    said = {
        run.better.get(score) if run.better else trained[scores_of([run])[:1] == [score]]
        for run in runs
    }
    if said == {"higher"}:
        return "higher"
    return "lower" if said == {"lower"} else "neither"


def resolved(column: Column, runs: Sequence[RunRecord]) -> Column:
    """The column with what is better of it where that is left to the rewards (`declared`)."""
    if column.better != "declared":
        return column
    kind, _, score = column.measure.partition("/")
    if kind in ("last", "max"):  # of a score in training; else of no score
        reward = re.fullmatch(r"reward/(.*)/mean", score)
        score = reward[1] if reward else ""
    having = [run for run in runs if f"eval/{score}/mean" in run.series]
    return replace(column, better=declared(score, having) if having else "neither")


MOST_POINTS = 200
_REWARDS = 2
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
        row = group.name, column.label, column.scale, group.claimed.get(column.name)
        if curve := averaged(group.runs, metric, *row):
            column_curves.append(curve)
    shown = {curve.metric for curve in column_curves}
    # metrics of training that no column reports
    names = dict.fromkeys(name for group in trained for run in group.runs for name in run.series)
    rewards = [name for name in names if name.startswith("reward/")][:_REWARDS]
    others = [*rewards, *(name for name in ("kl/reference",) if name in names)]
    return column_curves + [
        curve
        for name in others
        for group in trained
        if name not in shown and (curve := averaged(group.runs, name, group.name)) is not None
    ]


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
    values = [scale * own[1] if own else np.array([]) for own in found]
    ends = [drawn_interval(v, mean) for v, mean in zip(values, curve.mean, strict=True)]
    return replace(curve, low=[low for low, _ in ends], high=[high for _, high in ends])


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


def mean_of_scores(run: RunRecord, terms: str, *, is_before: bool = False) -> float | None:
    """The plain mean of scores of the last evaluation, or of the one before training, as
    `hps+0.26*pickscore`; None where a score is missing.
    """
    values = []
    for term in terms.split("+"):
        factor, _, score = term.rpartition("*")
        if (series := run.series.get(f"eval/{score}/mean")) is None:
            return None
        x, y = series
        if is_before and x[0] != 0:
            return None
        values.append(float(factor or 1) * float(y[0 if is_before else -1]))
    return sum(values) / len(values)


def planned_passes(runs: Sequence[RunRecord], name: str) -> float | None:
    """Forward passes a sample by the runs' plans: `rollout`, `train`, or `all` of both.

    Of the stages of a row it is the mean over optimizer steps. As published, `rollout` includes
    the passes that only compare policies. None where a configuration doesn't say it.
    """
    try:
        counts = [_updates_and_passes(run.config, name) for run in runs]
    except (LookupError, TypeError, ValueError):  # of an earlier version
        return None
    return sum(n * passes for n, passes in counts) / sum(n for n, _ in counts)


def _updates_and_passes(config: Mapping[str, Any], name: str) -> tuple[int, float]:
    sample, compare, train = passes_per_sample(config, traits_of(config))
    passes = {"rollout": sample + compare, "train": train, "all": sample + compare + train}
    return int(config["iterations"] * config["updates_per_iteration"]), passes[name]
