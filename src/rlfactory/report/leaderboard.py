"""A leaderboard: methods compared over several tasks, each with runs of several seeds.

A run's score is its gain on the task: 0 is the model before training, 1 the task's target. The
statistics over tasks are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the
Statistical Precipice" (2021): interquartile mean, probability of improvement and performance
profile, with bootstrap intervals that resample the runs of each task.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlfactory.report.curves import mean_curve
from rlfactory.report.draw import by_metric, draw_panel, row_legend, row_style, short
from rlfactory.report.measure import before, measured
from rlfactory.report.plot import panel_axes, panel_rows, saved_figure
from rlfactory.report.read import RunRecord
from rlfactory.report.report import Curve, Entry
from rlfactory.report.run_groups import Group
from rlfactory.report.statistics import (
    MIN_RUNS,
    Array,
    Interval,
    improvement_interval,
    interquartile_mean,
    probability_of_improvement,
    stratified_bootstrap,
)
from rlfactory.report.text_table import Section, TextTable, joined
from rlfactory.run.atomic_write import write_text
from rlfactory.sweep.table import Column, Row, Table
from rlfactory.utils.data_files import read_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENTRIES_FILE = "leaderboard.json"
PROFILE_POINTS = 101
NOTE = (
    "A gain of 0 is the model before training, 1 the task's target. IQM is the interquartile mean "
    "over all runs of all tasks; P(better) is the probability that a run of the first method is "
    "better than one of this. Intervals are 95 % bootstraps that resample the runs of each task."
)


@dataclass(frozen=True)
class Place:
    """A method's place: its interquartile mean gain, and each task's mean gain.

    Attributes:
        better: the probability that a run of the first method is better than one of this; None for
            the first method itself, and without a task that both have at least three runs of.
    """

    method: str
    iqm: float
    interval: Interval
    runs: int
    by_task: dict[str, float]
    better: float | None
    better_interval: Interval


def entries_of(table: Table, groups: Sequence[Group]) -> list[Entry]:
    """The finished runs of a leaderboard's rows; empty where a sweep has no tasks."""
    columns = {column.name: column for column in table.columns}
    runs = {group.name: group.runs for group in groups}
    return [
        entry
        for row in table.rows
        if row.task
        for task in [table.tasks[row.task]]
        for run in runs.get(row.name, [])
        if (entry := _entry(row, columns[task.score], task.target, run))
    ]


def _entry(row: Row, column: Column, target: float, run: RunRecord) -> Entry | None:
    """A run's gain; None where it was not measured, or began at the target."""
    ends = [measured(run.stages, own) for own in (before(column), column)]
    first, last = (math.nan if end is None else column.scale * end for end in ends)
    if None in ends or target == first:
        return None
    nfe, reward = list[float](), list[float]()
    name = next((n for n in run.series if n.startswith("reward/") and n.endswith("/mean")), "")
    if name and "nfe/total" in run.series:
        x, means = run.series[name]
        nfe, reward = np.interp(x, *run.series["nfe/total"]).tolist(), means.tolist()
    gain = (last - first) / (target - first)
    return Entry(row.method, row.task, run.seed, first, last, gain, nfe, reward)


def gains(entries: Sequence[Entry], method: str) -> dict[str, Array]:
    """A method's gains `[N]` by task."""
    found: dict[str, list[float]] = {}
    for entry in entries:
        if entry.method == method:
            found.setdefault(entry.task, []).append(entry.gain)
    return {task: np.array(own) for task, own in found.items()}


def ranking(entries: Sequence[Entry]) -> list[Place]:
    """The methods, the one with the highest interquartile mean gain first.

    A method is ranked by the tasks that it has runs of; the table shows which these are.
    """
    scores = {e.method: gains(entries, e.method) for e in entries}
    iqms = {method: float(_iqm([*own.values()])) for method, own in scores.items()}
    ranked = sorted(iqms, key=lambda method: -iqms[method])
    return [_place(method, iqms[method], scores[method], scores[ranked[0]]) for method in ranked]


def _place(method: str, iqm: float, own: Mapping[str, Array], best: Mapping[str, Array]) -> Place:
    pairs = [(best[task], own[task]) for task in own if task in best and own is not best]
    pairs = [pair for pair in pairs if min(map(len, pair)) >= MIN_RUNS]
    theirs, ours = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    samples = [*own.values()]
    enough = min(map(len, samples)) >= MIN_RUNS
    return Place(
        method=method,
        iqm=iqm,
        interval=stratified_bootstrap(samples, _iqm) if enough else None,
        runs=sum(map(len, samples)),
        by_task={task: float(values.mean()) for task, values in own.items()},
        better=float(probability_of_improvement(theirs, ours)) if pairs else None,
        better_interval=improvement_interval(theirs, ours) if pairs else None,
    )


def _iqm(samples: Sequence[Array]) -> Array:
    return interquartile_mean(np.concatenate(samples, axis=-1))


def profile(samples: Iterable[Array], thresholds: Array) -> Array:
    """The share of runs above each threshold `[T]`, the mean over tasks."""
    shares = [(values[:, None] > thresholds).mean(0) for values in samples]
    return np.mean(shares, axis=0)


def thresholds_of(entries: Sequence[Entry]) -> Array:
    """Evenly spaced thresholds over all gains, for performance profiles."""
    all_gains = [entry.gain for entry in entries]
    return np.linspace(min(0.0, *all_gains), max(all_gains), PROFILE_POINTS)


def efficiency(entries: Sequence[Entry]) -> list[Curve]:
    """The training reward over thousands of forward passes: the mean over runs of each method.

    It is drawn at the runs' mean number of passes. Of some algorithms that number depends on the
    samples, so that no two runs share one.
    """
    counted: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry.nfe:
            counted.setdefault((entry.task, entry.method), []).append(entry)
    found = []
    for (task, method), runs in counted.items():
        length = min(len(e.nfe) for e in runs)
        at = np.mean([e.nfe[:length] for e in runs], axis=0) / 1000
        series = [(at, np.array(e.reward[:length])) for e in runs]
        found.append(mean_curve(series, "training reward", method, task))
    return [curve for curve in found if curve is not None]


def leaderboard_sections(entries: Sequence[Entry]) -> list[Section]:
    """The section on methods over all tasks; none without entries."""
    table = leaderboard_table(entries)
    return [Section("Leaderboard", table, NOTE)] if table else []


def leaderboard_table(entries: Sequence[Entry]) -> TextTable | None:
    """A line for each method, the best first; None without entries."""
    if not entries:
        return None
    tasks = [*dict.fromkeys(entry.task for entry in entries)]
    lines = []
    for place in ranking(entries):
        numbers = [joined([place.by_task.get(task)], ".3f") for task in tasks]
        numbers += [joined([place.iqm], ".3f"), joined(place.interval or (), ".3f")]
        chance = [joined([place.better], ".2f"), joined(place.better_interval or (), ".2f")]
        lines.append([place.method, *numbers, str(place.runs), *chance])
    heads = ["method", *tasks, "IQM gain", "95 % interval", "runs", "P(better)", "95 % interval "]
    return TextTable(heads, lines)


def write_entries(entries: Sequence[Entry], path: Path) -> Path:
    """Write entries as JSON, one a line."""
    lines = ",\n".join(json.dumps(asdict(entry), ensure_ascii=False) for entry in entries)
    write_text(path, f"[\n{lines}\n]\n")
    return path


def read_entries(path: Path) -> list[Entry]:
    """Read what `write_entries` wrote."""
    rows = read_json(path, list[Entry], remedy="write it again with rlfactory report")
    return [Entry(**row) for row in rows]


def draw_leaderboard(entries: Sequence[Entry], path: Path) -> Path:
    """Draw a panel of gains, one of performance profiles, and one of training for each task."""
    places = ranking(entries)
    methods = [place.method for place in places]
    training = by_metric(efficiency(entries))
    across = panel_rows(2 + len(training))
    with saved_figure((max(4.3 * max(across), 6.0), 3.2 * len(across) + 0.5), path) as figure:
        axes = panel_axes(figure, 2 + len(training))
        _draw_gains(next(axes), places)
        _draw_profiles(next(axes), entries, methods)
        for own, panel in zip(axes, training, strict=True):
            draw_panel(own, panel, methods)
            own.set_xlabel("thousand forward passes")
        row_legend(figure, methods, min(len(methods), 4), longest=24, markersize=0)
    return path


def _draw_gains(axes: "Axes", places: Sequence[Place]) -> None:
    heights = range(len(places))[::-1]
    for number, (height, place) in enumerate(zip(heights, places, strict=True)):
        colour, dashes, _ = row_style(number)
        axes.plot(place.iqm, height, "o", color=colour)
        if place.interval is not None:
            axes.plot(place.interval, [height, height], color=colour, linestyle=dashes)
    axes.set_yticks(heights, [short(place.method, 24) for place in places])
    axes.set_xlabel("gain")
    axes.set_title("Interquartile mean gain, 95 % interval")


def _draw_profiles(axes: "Axes", entries: Sequence[Entry], methods: Sequence[str]) -> None:
    thresholds = thresholds_of(entries)
    for number, method in enumerate(methods):
        colour, dashes, _ = row_style(number)
        shares = profile(gains(entries, method).values(), thresholds)
        axes.plot(thresholds, shares, color=colour, linestyle=dashes)
    axes.set_xlabel("gain")
    axes.set_title("Share of runs above a gain")
