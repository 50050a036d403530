"""The table of a sweep: its source, its rows and columns, and the runs that fill it.

It is saved as `sweep.json` in a sweep's folder; reports read only this file and the run folders.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from rlfactory.config.problems import Problem
from rlfactory.run.atomic_write import write_json
from rlfactory.utils.data_files import FileError, read_json

TABLE_FILE = "sweep.json"
REMEDY = "restore it from a copy, or run the sweep with another sweep_dir"


@dataclass(frozen=True)
class TableInfo:
    """The subject of a table, where it was published, and what of it was run here.

    A user's own table has only a title. `gpu_hours` is the budget of the full size, None where
    unknown; `ran` and `tolerance` are sentences.
    """

    title: str
    paper: str = ""
    table: str = ""
    gpu_hours: float | None = None
    ran: str = ""
    tolerance: str = ""


@dataclass(frozen=True)
class Column:
    """A column of the table.

    `measure` says which number of a run it reports:

    - `eval/NAME`: the mean of a evaluation score at the last evaluation,
    - `before/NAME`: the same at the first evaluation,
    - `last/METRIC`: a metric's mean over the last `window` lines that have it,
    - `max/METRIC`: its largest value,
    - `mean/SCORE+FACTOR*SCORE`: the plain mean of several evaluation scores,
    - `plan/rollout`, `plan/train`, `plan/all`: forward passes a sample, as the plan counts them,
    - `iterations`: the number of iterations,
    - empty: runs of this size don't measure it.

    `scale` multiplies a run's number, so that it has the unit of the paper's. `better` is what is
    better of it; `declared` is what the reward of the runs says of this score.
    """

    name: str
    label: str
    measure: str
    better: Literal["higher", "lower", "neither", "declared"] = "declared"
    digits: int = 3
    window: int = 1
    scale: float = 1.0


@dataclass(frozen=True)
class Task:
    """A task of a leaderboard: the column that scores it, and the score that counts as 1.

    The model before training counts as 0.
    """

    score: str
    target: float


@dataclass(frozen=True)
class Row:
    """A row of the table, with the paper's numbers by column.

    A row of a model before training has no jobs. Its `before` names the row that trains this model,
    and its numbers are that row's `before/NAME`. In a leaderboard a row is a `method` on a `task`.
    """

    name: str
    claimed: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    before: str | None = None
    method: str = ""
    task: str = ""


@dataclass(frozen=True)
class Job:
    """One run of a row: `rlfactory OVERRIDES run_dir=FOLDER`.

    Attributes:
        folder: relative to the sweep's folder.
        axes: the values that vary within the row, including the seed.
        after: the job whose weights this one begins with. A row's numbers are those of its last
            stage: the jobs that no other comes after.
    """

    name: str
    row: str
    folder: str
    overrides: list[str]
    axes: Mapping[str, Any] = field(default_factory=dict)
    after: str | None = None


BEFORE = "before"
"""In the place of a row: the other row itself, before training."""
KINDS = ("better", "higher", "lower", "no_worse", "equal", "order")


@dataclass(frozen=True)
class Claim:
    """A statement of a source on rows, in one of these forms:

    - `better`, `higher` or `lower`: a row, `than` another one, `before` or a number. Better is what
      the column says;
    - `no_worse`: a row, `than` another one, by no more than the `margin`;
    - `equal`: a row and another one, `before` or a number, up to the `margin`;
    - `order`: rows, each better than the next one.

    Attributes:
        text: the claim in a sentence.
        score: the column that decides it.
        stand_in: another column, whose stand-in decides it in sizes that have none for `score`.
        source: where it is said.
        margin: in the column's unit; may be a mapping by size.
    """

    text: str
    score: str
    source: str = ""
    stand_in: str = ""
    better: str | None = None
    higher: str | None = None
    lower: str | None = None
    no_worse: str | None = None
    equal: list[str | float] | None = None
    order: list[str] | None = None
    than: str | float | None = None
    margin: float | dict[str, float] | None = None

    @property
    def forms(self) -> list[str]:
        """The forms that it has; one, if it is right."""
        return [kind for kind in KINDS if getattr(self, kind) is not None]

    @property
    def kind(self) -> str:
        """Its form."""
        return self.forms[0]

    @property
    def about_quality(self) -> bool:
        """Whether it depends on whether more or less of the score is better."""
        return self.kind in ("better", "no_worse", "order")

    @property
    def pairs(self) -> list[tuple[str, str | float]]:
        """The compared rows: the first of each pair is the one that is claimed to be ahead."""
        if self.order is not None:
            return [*zip(self.order, self.order[1:], strict=False)]
        if self.equal is not None:
            return [(str(self.equal[0]), self.equal[1])]
        assert self.than is not None
        return [(getattr(self, self.kind), self.than)]

    def margin_of(self, size: str) -> float:
        """The margin in a size; 0 for claims without one."""
        margin = self.margin.get(size) if isinstance(self.margin, dict) else self.margin
        return margin or 0.0


def form_problems(claim: Claim, place: str) -> Iterator[Problem]:
    """Faults of a claim by itself."""
    if len(claim.forms) != 1:
        named = " and ".join(claim.forms) or "none"
        yield Problem(place, f"has {named}; allowed is exactly one of {', '.join(KINDS)}")
        return
    needs_than = claim.kind not in ("equal", "order")
    if needs_than and claim.than is None:
        yield Problem(f"{place}.than", f"is missing; allowed is a row, {BEFORE} or a number")
    if not needs_than and claim.than is not None:
        yield Problem(f"{place}.than", f"has no meaning beside {claim.kind}")
    if claim.equal is not None and (len(claim.equal) != 2 or not isinstance(claim.equal[0], str)):
        allowed = f"a row, and a row, {BEFORE} or a number"
        yield Problem(f"{place}.equal", f"is {claim.equal!r}; allowed is [{allowed}]")
    if claim.order is not None and len(claim.order) < 2:
        yield Problem(f"{place}.order", f"is {claim.order!r}; allowed are two rows or more")


@dataclass(frozen=True)
class Table:
    """A sweep of one size."""

    name: str
    size: str
    about: TableInfo
    columns: list[Column]
    rows: list[Row]
    jobs: list[Job]
    claims: list[Claim] = field(default_factory=list)
    tasks: Mapping[str, Task] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the folder's `sweep.json`."""
        write_json(folder / TABLE_FILE, asdict(self), allow_nan=False)

    @classmethod
    def load(cls, folder: Path) -> "Table":
        """Read `sweep.json`; FileNotFoundError if there is none, FileError if it is damaged."""
        path = folder / TABLE_FILE
        table: Table = nested(cls, read_json(path, cls, remedy=REMEDY))
        if problem := next(_problems(table), ""):
            raise FileError(path, problem, REMEDY)
        return table


def nested(kind: Any, value: Any) -> Any:
    """Plain values as what a type says: its dataclasses, also in lists and mappings."""
    inner = next((i for i in get_args(kind) if is_dataclass(i)), None)
    if is_dataclass(kind):
        kinds = get_type_hints(kind)
        return kind(**{name: nested(kinds[name], v) for name, v in value.items()})  # type: ignore[operator]
    if inner is None:
        return value
    if isinstance(value, Mapping):
        return {key: nested(inner, v) for key, v in value.items()}
    return [nested(inner, v) for v in value]


def _problems(table: Table) -> Iterator[str]:
    """Faults of a table whose parts are each well-formed."""
    jobs = {job.name: job for job in table.jobs}
    rows = {row.name for row in table.rows}
    for job in table.jobs:
        if job.folder in ("", ".", "..") or "/" in job.folder or "\0" in job.folder:
            yield f"the folder of a job is {ascii(job.folder)[:60]}, not a name"
        if job.row not in rows or (job.after is not None and job.after not in jobs):
            yield f"the job {ascii(job.name)[:60]} is of a row, or after a job, that is not there"
        if len(list(islice(_chain(job, jobs), len(jobs) + 1))) > len(jobs):
            yield f"the job {ascii(job.name)[:60]} comes after itself"
    if len(jobs) != len(table.jobs) or len(rows) != len(table.rows):
        yield "two rows or two jobs have one name"
    if table.jobs and not table.columns:
        yield "it has no columns"
    # a size has not every column of the file, and a report says which claims it can't test
    for number, claim in enumerate(table.claims):
        yield from map(str, form_problems(claim, f"claims.{number}"))


def _chain(job: Job | None, jobs: Mapping[str, Job]) -> Iterator[Job]:
    """A job and those that it comes after."""
    while job is not None:
        yield job
        job = jobs.get(job.after or "")
