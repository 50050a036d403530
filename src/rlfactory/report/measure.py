"""What a column reports of a run; see `Column.measure`."""

from collections.abc import Iterable
from dataclasses import replace

from rlfactory.report.read import Run, Series
from rlfactory.sweep.table import Column


def metrics_of(columns: Iterable[Column]) -> list[str]:
    """The metrics that have to be read for the columns, besides the evaluations."""
    parts = [column.measure.partition("/") for column in columns]
    return [name for kind, _, name in parts if kind in ("last", "max")]


def measured(run: Run, column: Column, at: int | None = None) -> float | None:
    """A run's number in a column, unscaled; None where it has none.

    `at` is the iteration whose evaluation counts, instead of the last.
    """
    kind, _, name = column.measure.partition("/")
    if kind == "iterations":
        return float(run.iterations)
    metric = metric_of(run, column)
    if metric is None:
        return None
    x, y = run.series[metric]
    if kind == "eval":
        chosen = y if at is None else y[x == at]
        return float(chosen[-1]) if len(chosen) else None
    if kind == "before":
        return float(y[0]) if x[0] == 0 else None
    return float(y.max() if kind == "max" else y[-column.window :].mean())


def metric_of(run: Run, column: Column) -> str | None:
    """The metric that a column reads, where the run has measured it."""
    kind, _, name = column.measure.partition("/")
    # a score has a mean; diversity, KL and a category's score are numbers themselves
    evaluated = [f"eval/{name}/mean", f"eval/{name}"]
    names = evaluated if kind in ("eval", "before") else [name]
    return next((name for name in names if name in run.series), None)


def before(column: Column) -> Column:
    """The column that measures the same before training; nothing where it is of training."""
    kind, _, name = column.measure.partition("/")
    return replace(column, measure=f"before/{name}" if kind in ("eval", "before") else "")


def best_iteration(run: Run, columns: Iterable[Column]) -> int | None:
    """Where the evaluation was best by the first column that evaluates; None if none does."""
    for column in columns:
        metric = metric_of(run, column)
        if column.measure.startswith("eval/") and column.better != "neither" and metric:
            x, y = _later(run.series[metric])
            best = y.argmin() if column.better == "lower" else y.argmax()
            return int(x[best])
    return None


def _later(series: Series) -> Series:
    """Without the evaluation before training, if there is another."""
    x, y = series
    return (x, y) if len(x) < 2 or x[0] > 0 else (x[1:], y[1:])
