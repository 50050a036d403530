"""Read and check a file of `sweeps/`: a published table, and how its rows are run."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from rlfactory.config.paths import packaged_folder
from rlfactory.config.problems import PlanError, Problem, closest, unknown_key
from rlfactory.sweep.claims import Claim, claim_problems
from rlfactory.sweep.table import TableInfo, Task
from rlfactory.utils.typecheck import describe, matches

Node = Mapping[str, Any]
Words = list[str]


@dataclass(frozen=True)
class Line:
    """A row of the file. `by_size` has the overrides of one size; None: not run in that size.

    `differs` has the settings, not of size, in which the sizes differ, with the reason of each.
    """

    name: str
    claimed: dict[str, float | int] = field(default_factory=dict)
    note: str = ""
    before: str | None = None
    overrides: Words | None = None
    stages: list[Words] | dict[str, list[Words]] | None = None
    axes: dict[str, Any] = field(default_factory=dict)
    differs: dict[str, str] = field(default_factory=dict)
    by_size: dict[str, Words | None] = field(default_factory=dict)
    method: str = ""
    task: str = ""


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
    return {p.relative_to(folder).with_suffix("").as_posix(): p for p in _files(folder)}


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.yaml"))


def file_of(name: str) -> Path:
    """The file of a sweep: the name of one that ships, or a path that ends in .yaml."""
    if name.endswith(".yaml"):
        path = Path(name).expanduser()
        if os.path.isfile(path):
            return path
        raise PlanError([Problem("sweep", f"there is no file {name}", "rlfactory list sweeps")])
    known = sweeps()
    if name in known:
        return known[name]
    guess = closest(name, known)
    suggestion = f". Did you mean {guess}?" if guess else ""
    message = f"there is no sweep {name}; known are {', '.join(known) or 'none'}{suggestion}"
    raise PlanError([Problem("sweep", message, f"rlfactory sweep {guess}" if guess else "")])


def read_sheet(path: Path) -> SweepFile:
    """Read a file; PlanError with all that is wrong with it."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise PlanError([Problem(str(path), f"can't be read: {reason}")]) from error
    problems: list[Problem] = []
    sheet = _sheet(content, problems)
    if sheet is not None:
        problems += _contradictions(sheet)
    if problems or sheet is None:
        raise PlanError([Problem(f"{path.name}, {p.key}", p.message) for p in problems])
    return sheet


def _sheet(content: object, problems: list[Problem]) -> SweepFile | None:
    if not isinstance(content, Mapping):
        problems.append(Problem("file", "holds no mapping, so it is not a sweep"))
        return None
    values, sizes = dict(content), content.get("sizes")
    named = [*sizes] if isinstance(sizes, Mapping) else []
    values["about"] = _dataclass(TableInfo, content.get("about"), "about", problems)
    rows = content.get("rows")
    if isinstance(rows, list):
        lines = [_line(node, f"rows.{i}", named, problems) for i, node in enumerate(rows)]
        values["rows"] = [line for line in lines if line is not None]
    claims = content.get("claims")
    if isinstance(claims, list):
        read = [_dataclass(Claim, node, f"claims.{i}", problems) for i, node in enumerate(claims)]
        values["claims"] = [claim for claim in read if claim is not None]
    tasks = content.get("tasks")
    if isinstance(tasks, Mapping):
        named_tasks = {n: _dataclass(Task, v, f"tasks.{n}", problems) for n, v in tasks.items()}
        values["tasks"] = {name: task for name, task in named_tasks.items() if task is not None}
    sheet: SweepFile | None = _dataclass(SweepFile, values, "", problems)
    return sheet


def _line(node: object, place: str, sizes: list[str], problems: list[Problem]) -> Line | None:
    if isinstance(node, Mapping):
        own = {size: node[size] for size in sizes if size in node}
        node = {k: v for k, v in node.items() if k not in own} | {"by_size": own}
    line: Line | None = _dataclass(Line, node, place, problems)
    return line


def _dataclass(kind: Any, node: object, place: str, problems: list[Problem]) -> Any:
    """Make a dataclass of a mapping; None, with problems added, where that is wrong."""
    before, prefix = len(problems), f"{place}." if place else ""
    if not isinstance(node, Mapping):
        problems.append(Problem(place, f"is {node!r}; allowed is a mapping"))
        return None
    kinds = get_type_hints(kind)
    needed = [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]
    problems += [Problem(f"{prefix}{name}", "is missing") for name in needed if name not in node]
    for name, value in node.items():
        key = f"{prefix}{name}"
        if name not in kinds:
            problems.append(unknown_key(key, [f"{prefix}{known}" for known in kinds]))
        elif not (value is None and name == "about") and not matches(value, kinds[name]):
            shown = f"is {value!r}; allowed is {describe(kinds[name])}"
            problems.append(Problem(key, shown))
    return kind(**node) if len(problems) == before else None


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
    yield from claim_problems(sheet.claims, names, sheet.columns, [*sheet.sizes])
