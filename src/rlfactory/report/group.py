"""Runs as the rows of a table: those of a sweep's row, or those that differ in their seed alone."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlfactory.report.differences import distinct, flat, shown
from rlfactory.report.read import ABSENT, DAMAGED, Damaged, Run
from rlfactory.sweep.table import Job, Row, Table

Reader = Callable[[Path], Run]


@dataclass(frozen=True)
class Member:
    """A run of a row, None if there is none to read; `fault` says why.

    `earlier` are the runs whose weights it went on from, the first first.
    """

    path: Path
    run: Run | None
    state: str
    fault: str = ""
    earlier: list[Run] = field(default_factory=list)


@dataclass(frozen=True)
class Group:
    """A row with its runs; where `untrained`, what counts is what they were before training."""

    name: str
    members: list[Member]
    claimed: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    untrained: bool = False

    @property
    def counted(self) -> list[Member]:
        """Those whose run is done."""
        return [m for m in self.members if m.run is not None and m.state == "done"]

    @property
    def runs(self) -> list[Run]:
        """The runs that are done."""
        return [m.run for m in self.counted if m.run is not None]

    @property
    def status(self) -> str:
        """How many are in which state."""
        if not self.members:
            return "published"
        if self.untrained:
            return "before training"
        return ", ".join(
            f"{n} {state}" for state, n in Counter(m.state for m in self.members).items()
        )


def read_member(path: Path, read: Reader) -> Member:
    """A run, or why there is none."""
    if not path.is_dir():
        return Member(path, None, ABSENT)
    try:
        run = read(path)
    except Damaged as error:
        return Member(path, None, DAMAGED, str(error))
    return Member(path, run, run.status)


def groups_of_table(table: Table, folder: Path, read: Reader) -> list[Group]:
    """A sweep's rows; one whose runs vary in more than the seed becomes several."""
    members = {job.name: read_member(folder / job.folder, read) for job in table.jobs}
    return [group for row in table.rows for group in _groups_of_row(row, table.jobs, members)]


def _groups_of_row(row: Row, jobs: Sequence[Job], members: Mapping[str, Member]) -> list[Group]:
    own = [job for job in jobs if job.row == row.name]
    untrained = not own and row.before is not None
    if untrained:
        own = [job for job in jobs if job.row == row.before and job.after is None]
    passed = {} if untrained else {job.name: job for job in own}
    went_on = {job.after for job in passed.values()}
    last = [job for job in own if job.name not in went_on]
    parted: dict[str, list[Member]] = {}
    for job in last:
        parted.setdefault(_varied(job.axes), []).append(_with_earlier(job, passed, members))
    if len(parted) < 2 or untrained:
        everyone = [member for part in parted.values() for member in part]
        return [Group(row.name, everyone, row.claimed, row.note, untrained)]
    return [
        Group(f"{row.name}, {name}", part, row.claimed, row.note) for name, part in parted.items()
    ]


def _varied(axes: Mapping[str, Any]) -> str:
    """What sets a run apart from others of its row; a trial has a number, and rounded values."""
    varied = {key: value for key, value in axes.items() if key not in ("seed", "stage", "trial")}
    if "trial" not in axes:
        return ", ".join(f"{key}={shown(value)}" for key, value in varied.items())
    tried = (f"{'.'.join(key.split('.')[-2:])} {_rounded(v)}" for key, v in varied.items())
    return f"trial {axes['trial']}: {', '.join(tried)}"


def _rounded(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else shown(value)


def _with_earlier(job: Job, own: Mapping[str, Job], members: Mapping[str, Member]) -> Member:
    """A job's run, with those of the same row that it goes on from."""
    earlier: list[Run] = []
    before = own.get(job.after or "")
    while before is not None:
        if (run := members[before.name].run) is not None:
            earlier.insert(0, run)
        before = own.get(before.after or "")
    last = members[job.name]
    return Member(last.path, last.run, last.state, last.fault, earlier)


def groups_of_runs(members: Iterable[Member]) -> list[Group]:
    """Runs without a table: those that differ in their seed alone are a row, called by what
    tells it from the others.
    """
    parted: dict[str, list[Member]] = {}
    for member in members:
        config = flat(member.run.config) if member.run is not None else {"": str(member.path)}
        parted.setdefault(repr(sorted(config.items())), []).append(member)
    parts = [*parted.values()]
    configs = [part[0].run.config if part[0].run is not None else {} for part in parts]
    rows = distinct([[config] for config in configs if config])
    return [Group(name, part) for name, part in zip(_names(parts, rows), parts, strict=True)]


def _names(parts: Sequence[list[Member]], rows: Mapping[str, list[str]]) -> list[str]:
    names, number = [], 0
    for part in parts:
        run = part[0].run
        if run is None:
            names.append(part[0].path.name)
            continue
        told = [f"{key}={values[number]}" for key, values in rows.items()]
        names.append(", ".join(told) or _summary(run.config))
        number += 1
    return names


def _summary(config: Mapping[str, Any]) -> str:
    """What a lone row is called."""
    chosen = config.get("choices", {})
    words = [str(chosen[group]) for group in ("model", "algo", "reward") if group in chosen]
    return ", ".join(words) or "all runs"
