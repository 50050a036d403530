"""What a report says, as plain values: all writers (terminal, Markdown, page, ...) read only this.

Numbers that are not known are None, never NaN. Ours are multiplied by their column's `scale`.
"""

from dataclasses import dataclass, field
from pathlib import Path

from rlfactory.sweep.table import About, Column


@dataclass(frozen=True)
class Cell:
    """A row's number in a column: the paper's, and ours over the `n` runs that have one.

    `low` and `high` are the mean's 95 % interval by Student's t, None below two runs. `iqm` is the
    interquartile mean, its interval a bootstrap stratified by what varies besides the seed.
    """

    paper: float | None
    mean: float | None
    low: float | None
    high: float | None
    n: int
    values: list[float]
    iqm: float | None = None
    iqm_low: float | None = None
    iqm_high: float | None = None


@dataclass(frozen=True)
class ReportRow:
    """A line of the table; `cells` by `Column.name`, each column has one.

    `steps` are iterations, `nfe` the network's evaluations per run, `status` how many of the row's
    runs are in which state. `differs` is the row's part of `Report.differences`.
    """

    name: str
    cells: dict[str, Cell]
    steps: int | None
    nfe: float | None
    status: str
    note: str
    differs: dict[str, str]


@dataclass(frozen=True)
class Curve:
    """A metric of a row over the iterations `x`: its mean over the runs, and the 95 % interval
    (equal to the mean where there is one run).

    `label` is what its panel is called. `paper` is what the row's claim is on this axis: to be
    dashed.
    """

    row: str
    metric: str
    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    label: str = ""
    paper: float | None = None


@dataclass(frozen=True)
class Picture:
    """A PNG of a row's samples."""

    row: str
    caption: str
    path: Path


@dataclass(frozen=True)
class TextSample:
    """What a row's model answered before and after training."""

    row: str
    prompt: str
    before: str
    after: str


@dataclass(frozen=True)
class Comparison:
    """A row against another in one column.

    `difference` is the row's mean less the other's over the `n` seeds that both have, with its
    95 % interval by Student's t; None where there are fewer than two. `probability` is that of
    improvement: that a run of the row is better than one of the other, with a bootstrap interval.
    """

    row: str
    other: str
    column: str
    difference: float | None
    low: float | None
    high: float | None
    n: int
    probability: float | None
    probability_low: float | None
    probability_high: float | None


@dataclass(frozen=True)
class Report:
    """A table and all that goes with it.

    `differences` has, for each configuration key in which rows differ, a value per row in the rows'
    order. `notes` are sentences: what was left out, what to mind.
    """

    title: str
    about: About | None
    columns: list[Column]
    rows: list[ReportRow]
    curves: list[Curve]
    pictures: list[Picture]
    texts: list[TextSample]
    differences: dict[str, list[str]]
    notes: list[str]
    comparisons: list[Comparison] = field(default_factory=list)
