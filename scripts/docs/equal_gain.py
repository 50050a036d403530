"""Remedies against reward hacking, compared where they have raised the proxy equally far.

A remedy that trains less keeps more of the gold score by that alone, and so does stopping early. So
each run is read where its proxy has first risen by a given gain, interpolated between the two
evaluations around it; the row without a remedy, read there, is early stopping itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from hacking_runs import Point, Run, spread

from rlfactory.report.plot import COLORS, saved_figure
from rlfactory.report.statistics import MIN_RUNS, mean_interval
from rlfactory.report.verdicts import (
    MIN_SEEDS,
    MeanDifference,
    greater,
    holm,
    paired_difference,
    verdict,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DECIDED = {"agree": "keeps more", "disagree": "keeps less", "undecided": "undecided"}


@dataclass(frozen=True)
class Reading:
    """A run where its proxy has first risen by a gain: iteration, change of gold, other metrics."""

    iteration: float
    gold: float
    others: Mapping[str, float]


def at_gain(run: Run, gain: float) -> Reading | None:
    """The reading of a run; None where it never gains as much."""
    for before, after in pairwise(run.points):
        low, high = (point.proxy - run.first.proxy for point in (before, after))
        if low < gain <= high:
            share = (gain - low) / (high - low)
            return between(run.first, before, after, share)
    return None


def between(first: Point, before: Point, after: Point, share: float) -> Reading:
    """A point of the line between two evaluations."""

    def mixed(low: float, high: float) -> float:
        return low + share * (high - low)

    others = {key: mixed(before.others[key], after.others[key]) for key in before.others}
    gold = mixed(before.gold, after.gold) - first.gold
    return Reading(mixed(before.iteration, after.iteration), gold, others)


def readings(runs: Sequence[Run], gain: float) -> dict[int, Reading]:
    """Those of the runs that gain as much, by seed."""
    found = {run.seed: at_gain(run, gain) for run in runs}
    return {seed: reading for seed, reading in found.items() if reading is not None}


def difference(ours: Mapping[int, Reading], other: Mapping[int, Reading]) -> MeanDifference:
    """The mean over seeds of gold less that of the other row, with its standard error."""
    return paired_difference(*({s: r.gold for s, r in row.items()} for row in (ours, other)))


def verdicts(rows: Mapping[str, Mapping[int, Reading]], baseline: str) -> dict[str, str]:
    """For each other row, whether it keeps more gold than the baseline at this gain.

    Student's t over seeds that both rows have, two-sided, at 5 % after Holm's correction for the
    rows; undecided below five such seeds.
    """
    found = {name: difference(own, rows[baseline]) for name, own in rows.items()}
    tested = {n: greater(d) for n, d in found.items() if n != baseline and d.seeds >= MIN_SEEDS}
    adjusted = holm([evidence.p for evidence in tested.values()])
    decided = {n: verdict(e, p) for (n, e), p in zip(tested.items(), adjusted, strict=True)}
    return {n: DECIDED[decided.get(n, "undecided")] for n in rows if n != baseline}


def table(
    rows: Mapping[str, Sequence[Run]],
    baseline: str,
    gains: Sequence[float],
    others: Mapping[str, str],
) -> Iterator[str]:
    """The rows at each gain: change of gold, also beside the baseline; means of `others`."""
    heads = ["gain", "row", "runs that reach it", "iteration", "change of gold"]
    heads += [f"gold beside {baseline}", "verdict", *others.values()]
    yield f"| {' | '.join(heads)} |"
    yield f"|---:|---|{'---:|' * (len(heads) - 2)}"
    for gain in gains:
        read = {name: readings(runs, gain) for name, runs in rows.items()}
        decided = verdicts(read, baseline)
        for name, own in read.items():
            if not own:
                continue
            paired = sorted(own.keys() & read[baseline].keys())
            apart = [own[seed].gold - read[baseline][seed].gold for seed in paired]
            cells = [f"+{gain:g}", name, f"{len(own)} of {len(rows[name])}"]
            cells.append(f"{np.mean([r.iteration for r in own.values()]):.1f}")
            cells.append(spread([r.gold for r in own.values()], 3))
            cells.append("–" if name == baseline else spread(apart, 3))
            cells.append(decided.get(name, "early stopping"))
            for key in others:
                values = [r.others[key] for r in own.values()]
                cells.append(f"{np.mean(values):.3g}")
            yield f"| {' | '.join(cells)} |"


def draw(
    rows: Mapping[str, Sequence[Run]], baseline: str, gains: Sequence[float], path: Path
) -> None:
    """Gold over the proxy's gain, a mean and its interval over the runs that gain as much."""
    with saved_figure((9.2, 3.9), path) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        methods = [name for name in rows if "," not in name]
        remedies = [baseline, *(name for name in rows if name.startswith(f"{baseline}, "))]
        for panel, title, names in zip(
            axes, ("Methods", "A KL penalty, and stopping early"), (methods, remedies), strict=True
        ):
            for i, name in enumerate(names):
                apart = 0.01 * (i - len(names) / 2)  # so that no interval hides another
                _line(panel, rows[name], gains, COLORS[i % len(COLORS)], name, apart)
            panel.axhline(0, color="#55575e", linewidth=0.6)
            panel.set_title(title)
            panel.set_xlabel("gain of the proxy (log-odds)")
            panel.legend(fontsize=7, loc="best")
        axes[0].set_ylabel("change of gold")


def _line(
    panel: "Axes",
    runs: Sequence[Run],
    gains: Sequence[float],
    colour: str,
    label: str,
    apart: float,
) -> None:
    """One row: gains that fewer than `MIN_RUNS` of its runs reach are left out."""
    found = {gain: [r.gold for r in readings(runs, gain).values()] for gain in gains}
    kept = {gain: values for gain, values in found.items() if len(values) >= MIN_RUNS}
    means = np.array([np.mean(values) for values in kept.values()])
    ends = np.array([mean_interval(values) for values in kept.values()]).reshape(-1, 2)
    reach = np.abs(ends.T - means)
    at = np.array([*kept]) + apart
    panel.errorbar(at, means, reach, color=colour, label=label, fmt="o-", ms=3, capsize=2, lw=1.2)
