"""Numbers of runs in the table's columns, and what is better of them."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from rlfactory.config.memory.peak_memory import traits_of
from rlfactory.config.nfe import passes_per_sample
from rlfactory.report.read import RunRecord
from rlfactory.sweep.table import Column


def measured(stages: Sequence[RunRecord], column: Column) -> float | None:
    """The unscaled number in a column of a run, the last of its stages; None where it has none.

    What is counted is counted over all stages; a number before training is of the first one.
    """
    kind, _, name = column.measure.partition("/")
    run = stages[0] if kind == "before" else stages[-1]
    if kind == "iterations":
        return float(sum(stage.iterations for stage in stages))
    if kind == "plan":
        return planned_passes(stages, name)
    if kind == "mean" or name.startswith("mean/"):
        return mean_of_scores(run, name.removeprefix("mean/"), is_before=kind == "before")
    metric = metric_of(run, column)
    if metric is None:
        return None
    x, y = run.series[metric]
    if kind == "eval":
        return float(y[-1])
    if kind == "before":
        return float(y[0]) if x[0] == 0 else None
    return float(y.max() if kind == "max" else y[-column.window :].mean())


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
    """The better direction of a score: as all runs say it; unknown scores are not judged.

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
    total, updates = 0.0, 0
    try:
        for config in (run.config for run in runs):
            sample, compare, train = passes_per_sample(config, traits_of(config))
            passes = {"rollout": sample + compare, "train": train, "all": sample + compare + train}
            count = int(config["iterations"] * config["updates_per_iteration"])
            total, updates = total + count * passes[name], updates + count
    except (LookupError, TypeError, ValueError):  # of an earlier version
        return None
    return total / updates
