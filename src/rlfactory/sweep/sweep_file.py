"""Read and check a file of `sweeps/`: a published table, and how its rows are run."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.options import packaged_folder
from rlfactory.config.problems import PlanError, Problem, unknown_key, unknown_name
from rlfactory.sweep.table import BEFORE, Claim, Row, TableInfo, Task, form_problems, nested
from rlfactory.utils.data_files import load_yaml, mismatches

Words = list[str]


@dataclass(frozen=True)
class Line(Row):
    """A row of the file. `by_size` has the overrides of one size; None: not run in that size.

    `differs` has the settings, not of size, in which the sizes differ, with the reason of each.
    """

    overrides: Words | None = None
    stages: list[Words] | dict[str, list[Words]] | None = None
    axes: dict[str, Any] = field(default_factory=dict)
    differs: dict[str, str] = field(default_factory=dict)
    by_size: dict[str, Words | None] = field(default_factory=dict)


@dataclass(frozen=True)
class SweepFile:
    """The content of a file, for all sizes. `columns` and `search` are checked where used.

    `differs` is a row's, for all rows.
    """

    about: TableInfo
    columns: dict[str, dict[str, Any]]
    sizes: dict[str, Words]
    rows: list[Line]
    seeds: list[int] | dict[str, list[int]] = field(default_factory=lambda: [0])
    axes: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    tasks: dict[str, Task] = field(default_factory=dict)
    differs: dict[str, str] = field(default_factory=dict)


def sweeps() -> dict[str, Path]:
    """The files of the sweeps that ship, by name."""
    folder = packaged_folder("sweeps")
    files = sorted(folder.rglob("*.yaml"))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in files}


def file_of(name: str) -> Path:
    """The file of a sweep: the name of one that ships, or a path that ends in .yaml or .yml."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        if os.path.isfile(path):
            return path
        raise PlanError([Problem("sweep", f"there is no file {name}", "rlfactory list sweeps")])
    known = sweeps()
    if name in known:
        return known[name]
    if os.path.isfile(file := f"{name}.yaml"):
        message = f"is {name}, and a file is named with its ending"
        raise PlanError([Problem("sweep", message, f"rlfactory sweep {shlex.quote(file)}")])
    raise PlanError([unknown_name("sweep", "sweep", name, known, "rlfactory sweep ")])


def read_sheet(path: Path) -> SweepFile:
    """Read a file; PlanError with all that is wrong with it."""
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise PlanError([Problem(str(path), f"can't be read: {reason}")]) from error
    if isinstance(content, Mapping) and isinstance(content.get("sizes"), Mapping):
        rows = content.get("rows")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict):
                row["by_size"] = {size: row.pop(size) for size in content["sizes"] if size in row}
    problems = [Problem(at or "file", fault) for at, fault in mismatches(content, SweepFile)]
    if not problems:
        sheet: SweepFile = nested(SweepFile, content)
        problems += _contradictions(sheet)
    if problems:
        raise PlanError([Problem(f"{path.name}, {p.key}", p.message) for p in problems])
    return sheet


def _contradictions(sheet: SweepFile) -> Iterator[Problem]:
    """Problems between parts that are each well-formed."""
    names = [line.name for line in sheet.rows]
    for name in sorted({n for n in names if names.count(n) > 1}):
        yield Problem("rows", f"two rows are named {name}")
    for i, line in enumerate(sheet.rows):
        for column in line.claimed.keys() - sheet.columns.keys():
            yield unknown_key(f"rows.{i}.claimed.{column}", sheet.columns)
        if line.before is not None and line.before not in names:
            yield unknown_key(f"rows.{i}.before", names)
        if bool(line.task) != bool(line.method):
            yield Problem(f"rows.{i}", "a row of a leaderboard has both a method and a task")
        if line.task and line.task not in sheet.tasks:
            yield unknown_key(f"rows.{i}.task.{line.task}", sheet.tasks)
    for name, task in sheet.tasks.items():
        if task.score not in sheet.columns:
            yield unknown_key(f"tasks.{name}.score.{task.score}", sheet.columns)
    if not sheet.sizes:
        yield Problem("sizes", "is empty; a sweep has at least one size")
    if not sheet.columns:
        yield Problem("columns", "is empty; a table has at least one column")
    for i, claim in enumerate(sheet.claims):
        wrong = [*form_problems(claim, f"claims.{i}")]
        yield from wrong
        if len(claim.forms) == 1:
            yield from _of_score(sheet, claim, f"claims.{i}")
            yield from _of_margin(sheet, claim, f"claims.{i}.margin")
            yield from _of_rows(claim, f"claims.{i}.{claim.kind}", names) if not wrong else ()


def _of_score(sheet: SweepFile, claim: Claim, place: str) -> Iterator[Problem]:
    """Faults of the columns of a claim."""
    if claim.score not in sheet.columns:
        yield unknown_name(f"{place}.score", "column", claim.score, sheet.columns)
        return
    nodes = {name: [node.get(size) for size in sheet.sizes] for name, node in sheet.columns.items()}
    with_one = [name for name, own in nodes.items() if any(isinstance(n, Mapping) for n in own)]
    if claim.stand_in and claim.stand_in not in with_one:
        yield unknown_name(f"{place}.stand_in", "column with a stand-in", claim.stand_in, with_one)
    if claim.about_quality and sheet.columns[claim.score].get("better") == "neither":
        message = f"is of the column {claim.score}, in which neither more nor less is better"
        yield Problem(f"{place}.{claim.kind}", f"{message}; allowed are higher, lower, equal")
    # in a size a column may have a label and a scale of its own, beside its measure
    measures = [n.get("measure") if isinstance(n, Mapping) else n for n in nodes[claim.score]]
    compares_before = BEFORE in (claim.than, *(claim.equal or ())[1:2])
    if compares_before and not any(str(measure).startswith("eval/") for measure in measures):
        message = f"is {BEFORE}, but the column {claim.score} is measured by no evaluation"
        yield Problem(f"{place}.{'equal' if claim.equal else 'than'}", message)


def _of_margin(sheet: SweepFile, claim: Claim, key: str) -> Iterator[Problem]:
    if claim.kind not in ("no_worse", "equal"):
        if claim.margin is not None:
            yield Problem(key, f"has no meaning beside {claim.kind}")
    elif claim.margin is None:
        yield Problem(key, f"is missing; {claim.kind} needs one, in the column's unit")
    elif isinstance(claim.margin, dict) and claim.margin.keys() != sheet.sizes.keys():
        allowed = f"a number for each of {', '.join(sheet.sizes)}"
        yield Problem(key, f"is {claim.margin!r}; allowed is {allowed}")
    elif any(claim.margin_of(size) <= 0 for size in sheet.sizes):
        yield Problem(key, f"is {claim.margin!r}; allowed is more than 0")


def _of_rows(claim: Claim, key: str, rows: Sequence[str]) -> Iterator[Problem]:
    first = [one for one, _ in claim.pairs]
    yield from (Problem(key, f"compares {a} with itself") for a, b in claim.pairs if a == b)
    for name in [*first, claim.pairs[-1][1]]:
        if isinstance(name, str) and name not in rows and name != BEFORE:
            yield unknown_name(key, "row", name, rows)
    if BEFORE in first:
        yield Problem(key, f"begins with {BEFORE}; allowed is a row")
