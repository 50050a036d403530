"""What is better of a score, as the rewards of the runs declare it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from rlfactory.report.read import RunRecord
from rlfactory.sweep.table import Column

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
