"""From typed paths to reports: one for each sweep, and one for the runs outside of sweeps."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rlfactory.config.problems import PlanError, Problem, closest
from rlfactory.report.build_report import build_report
from rlfactory.report.claims import claim_results
from rlfactory.report.leaderboard import entries_of
from rlfactory.report.measure import declared, scores_of
from rlfactory.report.read import RunRecord, read_run
from rlfactory.report.report import Report
from rlfactory.report.run_groups import Group, groups_of_runs, groups_of_table
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.lock import require_free
from rlfactory.sweep.sweep_file import sweeps
from rlfactory.sweep.sweep_folder import default_folder
from rlfactory.sweep.table import TABLE_FILE, Column, Table
from rlfactory.utils.text import plural

RUNS = "runs"
"""The name of the folder with the report of runs outside of sweeps."""
_DEPTH = 5


def reports_of(paths: Sequence[Path]) -> dict[str, Report]:
    """Build each report, by the name of its folder; PlanError where there is nothing to report."""
    sweeps, runs = find_inputs(paths)
    reports: dict[str, Report] = {}
    for folder in sweeps:
        table = _table(folder)
        name = _file_name(f"{table.name}-{table.size}")
        taken = sum(other.startswith(name) for other in reports)
        reports[f"{name}_{taken + 1}" if taken else name] = report_of_sweep(table, folder)
    return reports | (reports_of_runs(runs) if runs else {})


def _file_name(text: str) -> str:
    """A text as the name of a folder: what somebody sent may be named `../../other`."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)


def report_of_sweep(table: Table, folder: Path) -> Report:
    """Build the report of a sweep's own table."""
    groups = groups_of_table(table, folder)
    words = ["rlfactory", "sweep", table.name, f"size={table.size}"]
    if folder.absolute() != default_folder(table.name, table.size).absolute():
        words.append(f"sweep_dir={folder}")
    # of a sweep of one's own the file, and so the command, can't be known
    _require_done(groups, folder, shlex.join(words) if table.name in sweeps() else "")
    title = table.about.title if table.size == "full" else f"{table.about.title} ({table.size})"
    built = build_report(title, table.about, table.columns, groups)
    claims = claim_results(table.claims, built.columns, groups, table.size)
    return replace(built, claims=claims, entries=entries_of(table, groups))


def reports_of_runs(paths: Sequence[Path]) -> dict[str, Report]:
    """Build the reports of runs: one where all have a score in common, else one for each reward."""
    members = [read_run(path) for path in paths]
    resumed = shlex.join(["rlfactory", "resume", str(paths[0])])
    _require_done(groups_of_runs(members), paths[0], resumed)
    by_kind = _comparable(members)
    if len(by_kind) == 1:
        return {RUNS: _report_of_members(members)}
    named = {_file_name(f"{RUNS}-{kind}"): some for kind, some in by_kind.items()}
    return {name: _report_of_members(some) for name, some in named.items()}


def _report_of_members(members: Sequence[RunRecord]) -> Report:
    groups = groups_of_runs(members)
    runs = [run for group in groups for run in group.runs]
    evaluations = [(run.config.get("prompts"), run.config.get("evaluation")) for run in runs]
    prompts = {repr((p, e.get("prompts") if isinstance(e, dict) else None)) for p, e in evaluations}
    notes = ["Not all runs used the same evaluation prompts."] if len(prompts) > 1 else []
    return build_report(_title(members), None, _columns(runs), groups, notes=notes)


def _title(members: Sequence[RunRecord]) -> str:
    """The name of a single run; else what all runs have in common, and how many there are."""
    if len(members) == 1:
        return members[0].path.absolute().name
    chosen = [run.config.get("choices", {}) for run in members if run.is_read]
    values = [{str(own.get(group, "")) for own in chosen} for group in ("model", "algo", "reward")]
    shared = [one for own in values if len(own) == 1 for one in own if one]
    return ", ".join([*shared, plural(len(members), "run")])


def _table(folder: Path) -> Table:
    try:
        return Table.load(folder)
    except (ValueError, OSError) as error:
        raise PlanError([Problem(str(folder), f"its sweep.json can't be read: {error}")]) from error


def _require_done(groups: Sequence[Group], path: Path, fix: str) -> None:
    """PlanError unless some run is done."""
    if any(group.runs for group in groups):
        return
    runs = [run for group in groups for run in group.members]
    states = Counter(run.status for run in runs)
    counts = ", ".join(f"{count} {state}" for state, count in states.items()) or "no runs"
    faults = "".join(f"; {run.path}: {run.fault}" for run in runs if run.fault)
    try:
        if not is_sweep(path):
            require_free(path)
    except RunFolderError as error:  # it can't be resumed
        faults, fix = f"{faults}; {error}", ""
    raise PlanError([Problem(str(path), f"no run is done yet ({counts}){faults}", fix)])


def _comparable(members: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """The runs that can share a table, by what they have in common.

    All of them where they make the same kind of sample and have a score in common; else those with
    the same first score. Runs that can't be read, or are not done, go with the first ones.
    """
    done = [run for run in members if run.status == "done"]
    if len({run.media for run in done} - {None}) < 2 and scores_of(done):
        return {"all": [*members]}
    by_kind: dict[str, list[RunRecord]] = {}
    for run in done:
        first = next(iter(scores_of([run])), "")
        if not first:
            message = f"{run.path} has no evaluation, so it has nothing to compare"
            others = [str(other.path) for other in done if other is not run] or [str(run.path)]
            fix = shlex.join(["rlfactory", "report", *others])
            raise PlanError([Problem("report", message, fix)])
        by_kind.setdefault(" ".join(filter(None, [first, run.media])), []).append(run)
    next(iter(by_kind.values())).extend(run for run in members if run.status != "done")
    return by_kind


def _columns(runs: Sequence[RunRecord]) -> list[Column]:
    """The scores of each prompt set, its first one also before training; diversity, KL."""
    by_set: dict[str, list[str]] = {}
    for name in scores_of(runs):
        by_set.setdefault(name.rpartition("/")[0], []).append(name)

    scores = []
    for prompt_set, names in by_set.items():
        labels = {name: name.replace("/", ": ") for name in names}  # which wrap: `signs: ocr`
        before, first = f"{prompt_set}/before".lstrip("/"), names[0]
        scores.append(Column(before, f"{labels[first]} before", f"before/{first}", "neither"))
        scores += [Column(n, labels[n], f"eval/{n}", declared(n, runs)) for n in names]
    others = {"diversity": "diversity", "kl": "KL a token"}
    known = [name for name in others if any(f"eval/{name}" in run.series for run in runs)]
    return [*scores, *(Column(n, others[n], f"eval/{n}", "neither") for n in known)]


def find_inputs(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Find the sweeps, and the runs outside of them, in paths; PlanError for each path without."""
    found = {path: [*_search(path, _DEPTH)] if os.path.isdir(path) else [] for path in paths}
    if problems := [_not_found(path) for path, folders in found.items() if not folders]:
        raise PlanError(problems)
    unique = {folder.resolve(): folder for folders in found.values() for folder in folders}
    sweeps = [folder for folder in unique.values() if is_sweep(folder)]
    return sweeps, [folder for folder in unique.values() if folder not in sweeps]


def is_run(path: Path) -> bool:
    """Whether a run has begun in a folder."""
    folder = RunFolder(path)
    begun = os.path.isfile(folder.config) and os.path.isfile(folder.metrics)
    return begun or os.path.isfile(folder.status)


def is_sweep(path: Path) -> bool:
    """Whether a sweep has begun in a folder."""
    return os.path.isfile(path / TABLE_FILE)


def _search(path: Path, depth: int) -> Iterator[Path]:
    """Folders of runs and sweeps, at most `depth` levels below; none within another."""
    if is_sweep(path) or is_run(path):
        yield path
    elif depth:
        with os.scandir(path) as entries:
            inner = [e.path for e in entries if e.is_dir() and not e.name.startswith(".")]
        for folder in sorted(inner):
            yield from _search(Path(folder), depth - 1)


def _not_found(path: Path) -> Problem:
    if os.path.isdir(path):
        holds_some = any(path.iterdir())
        message = "is neither a run nor a sweep, and holds none" if holds_some else "is empty"
        return Problem(str(path), message, "rlfactory, which makes a run")
    if os.path.exists(path):  # false also for names that are too long
        return Problem(str(path), "is a file, not the folder of a run or a sweep")
    names = [p.name for p in path.parent.iterdir()] if os.path.isdir(path.parent) else []
    guess = closest(path.name, names)
    suggestion = f". Did you mean {path.parent / guess}?" if guess else ""
    return Problem(str(path), f"there is no such folder{suggestion}")
