"""What a sweep is about: a published table, its rows and columns, and the runs that fill it.

The file `sweep.json` in a sweep's folder holds one of these; reports read nothing else of it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rlfactory.run.atomic import write_text

TABLE_FILE = "sweep.json"


@dataclass(frozen=True)
class About:
    """Where a table was published, and what of it was run here.

    `gpu_hours` is the budget of the full form, None where no one has said; `ran` and `tolerance`
    are sentences.
    """

    title: str
    paper: str
    table: str
    gpu_hours: float | None
    ran: str
    tolerance: str


@dataclass(frozen=True)
class Column:
    """A number that the table reports.

    `measure` is where a run has it: `eval/NAME`, the mean of a held-out score at the last
    evaluation; `before/NAME`, the same at the first; `last/METRIC`, a metric's mean over the last
    `window` lines that have it; `max/METRIC`; `iterations`. Empty: no run of this size measures it.
    `scale` multiplies ours before it is shown beside the paper's.
    """

    name: str
    label: str
    measure: str
    better: Literal["higher", "lower", "neither"] = "higher"
    digits: int = 3
    window: int = 1
    scale: float = 1.0


@dataclass(frozen=True)
class Row:
    """A line of the table: what it is called, and what the paper says it reached, by column.

    One of weights before training has no jobs: it names the row `before` whose training they are,
    and ours are that row's `before/NAME`.
    """

    name: str
    claimed: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    before: str | None = None


@dataclass(frozen=True)
class Job:
    """One run of a row: `rlfactory OVERRIDES run_dir=FOLDER`, with what tells it from its siblings.

    `folder` is relative to the sweep's. `axes` are the values that vary within the row, the seed
    among them. `after` names the job whose weights this one begins with; a row's numbers are those
    of the jobs that no other comes after.
    """

    name: str
    row: str
    folder: str
    overrides: list[str]
    axes: Mapping[str, Any] = field(default_factory=dict)
    after: str | None = None


@dataclass(frozen=True)
class Table:
    """A sweep of one size."""

    name: str
    size: str
    about: About
    columns: list[Column]
    rows: list[Row]
    jobs: list[Job]

    def save(self, folder: Path) -> None:
        """Write the folder's `sweep.json`."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False, allow_nan=False)
        write_text(folder / TABLE_FILE, text + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Table":
        """Read what `save` wrote; FileNotFoundError, or ValueError if it is something else."""
        path = folder / TABLE_FILE
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                name=content["name"],
                size=content["size"],
                about=About(**content["about"]),
                columns=[Column(**column) for column in content["columns"]],
                rows=[Row(**row) for row in content["rows"]],
                jobs=[Job(**job) for job in content["jobs"]],
            )
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} is no table of a sweep ({error})") from error
