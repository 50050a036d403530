"""A report as plain values: all writers (terminal, Markdown, HTML, ...) read only this.

Unknown numbers are None, never NaN. Numbers of runs are already multiplied by `Column.scale`.
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rlfactory.report.sample_pairs import SamplePair
from rlfactory.report.statistics import (
    MIN_RUNS,
    Interval,
    interquartile_interval,
    interquartile_mean,
    mean_interval,
)
from rlfactory.report.text_table import Section
from rlfactory.report.verdicts import Verdict
from rlfactory.sweep.table import Claim, Column, TableInfo


@dataclass(frozen=True)
class Cell:
    """A row's numbers in a column: the published one, and those of its runs."""

    paper: float | None = None
    values: list[float] = field(default_factory=list)

    @property
    def n(self) -> int:
        """How many runs have a number."""
        return len(self.values)

    @property
    def mean(self) -> float | None:
        """The mean over runs."""
        return sum(self.values) / self.n if self.values else None

    @property
    def interval(self) -> Interval:
        """The mean's 95 % interval by Student's t; None below two runs."""
        return mean_interval(self.values)

    @property
    def iqm(self) -> float | None:
        """The interquartile mean."""
        return float(interquartile_mean(self.values)) if self.values else None

    @cached_property
    def iqm_interval(self) -> Interval:
        """Its bootstrap interval; None below three runs."""
        return interquartile_interval(self.values) if self.n >= MIN_RUNS else None


@dataclass(frozen=True)
class ReportRow:
    """A row of the table.

    Attributes:
        cells: one for each column, by `Column.name`.
        steps: training iterations, the most of its runs.
        nfe: forward passes of a run, the mean over its runs.
        status: how many of its runs are in which state.
    """

    name: str
    cells: dict[str, Cell]
    steps: int | None
    nfe: float | None
    status: str
    note: str


@dataclass(frozen=True)
class Curve:
    """A metric of a row over the iterations `x`: the mean over runs, and its 95 % interval.

    Of one run the interval is that of an evaluation's prompts, or equal to the mean.

    Attributes:
        label: the title of its panel.
        paper: the published value on this axis, drawn dashed.
        points: what the mean was smoothed from, drawn as faint points; empty for none.
        joined: whether a line joins the measurements; None: where there are enough of them.
    """

    row: str
    metric: str
    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    label: str = ""
    paper: float | None = None
    points: list[float] = field(default_factory=list)
    joined: bool | None = None


@dataclass(frozen=True)
class SampleImage:
    """A PNG with samples of a row."""

    row: str
    caption: str
    path: Path


@dataclass(frozen=True)
class ClaimResult:
    """A claim with its verdict.

    Attributes:
        reason: why no test was made; empty where one was.
        difference, low, high: of the two compared rows with its 95 % interval, in the column's
            unit; of an order, of the step that is least clear. None where unknown.
        p: of the verdict in either direction, adjusted by Holm's method for the page's claims.
        seeds: that both rows have.
        prompts: of a seed's evaluation; 1 for a number that is no mean over prompts.
    """

    claim: Claim
    comparison: str
    column: str
    verdict: Verdict
    reason: str = ""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    seeds: int = 0
    prompts: int = 0
    digits: int = 3


@dataclass(frozen=True)
class Entry:
    """A run of a method on a task.

    Attributes:
        before, after: the task's score of the untrained and of the trained model.
        gain: (after - before) / (target - before).
        nfe, reward: the forward passes made and the mean training reward, after each iteration.
    """

    method: str
    task: str
    seed: int
    before: float
    after: float
    gain: float
    nfe: list[float]
    reward: list[float]


@dataclass(frozen=True)
class Report:
    """A table with its curves and samples, and further tables.

    Attributes:
        about: where the table was published; None for runs outside of sweeps.
        texts: responses before and after training, by row.
        notes: sentences below the table.
        claims: what the source claims of the rows, with verdicts.
        entries: the finished runs of a leaderboard.
        tables: those below the main one.
    """

    title: str
    about: TableInfo | None = None
    columns: list[Column] = field(default_factory=list)
    rows: list[ReportRow] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    images: list[SampleImage] = field(default_factory=list)
    texts: dict[str, list[SamplePair]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    claims: list[ClaimResult] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    tables: list[Section] = field(default_factory=list)
