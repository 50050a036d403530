"""From paths to reports: one for each sweep, and one for the runs that belong to none."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rlfactory.problems import PlanError, Problem
from rlfactory.report.assemble import assemble
from rlfactory.report.discover import discover
from rlfactory.report.group import Group, groups_of_runs, groups_of_table, read_member
from rlfactory.report.measure import metrics_of
from rlfactory.report.read import DAMAGED, Run, read_run
from rlfactory.report.report import Report
from rlfactory.sweep.table import Column, Table

RUNS = "runs"
"""What the folder of a report of runs is called."""


def reports_of(paths: Sequence[Path], *, best: bool = False) -> dict[str, Report]:
    """Each report by a name for its folder; PlanError where there is nothing to report."""
    found = discover(paths)
    reports: dict[str, Report] = {}
    for folder in found.sweeps:
        table = _table(folder)
        name = f"{table.name}-{table.size}"
        taken = sum(other.startswith(name) for other in reports)
        reports[f"{name}_{taken + 1}" if taken else name] = report_of_sweep(table, folder, best)
    if found.runs:
        reports[RUNS] = report_of_runs(found.runs, best)
    return reports


def report_of_sweep(table: Table, folder: Path, best: bool = False) -> Report:
    """A sweep's own table."""
    groups = groups_of_table(table, folder, partial(read_run, wanted=metrics_of(table.columns)))
    _require_done(groups, folder, f"rlfactory sweep {table.name} size={table.size}")
    title = table.about.title if table.size == "full" else f"{table.about.title} ({table.size})"
    return assemble(title, table.about, table.columns, groups, best=best)


def report_of_runs(paths: Sequence[Path], best: bool = False) -> Report:
    """A table of runs that have scores in common."""
    members = [read_member(path, read_run) for path in paths]
    groups = groups_of_runs(members)
    _require_done(groups, paths[0], f"rlfactory resume {paths[0]}")
    runs = [run for group in groups for run in group.runs]
    _require_alike(runs)
    title = f"{len(members)} runs" if len(members) > 1 else paths[0].absolute().name
    return assemble(title, None, _columns(runs), groups, best=best, notes=_other_prompts(runs))


def _table(folder: Path) -> Table:
    try:
        return Table.load(folder)
    except (ValueError, OSError) as error:
        raise PlanError([Problem(str(folder), f"its sweep.json can't be read: {error}")]) from error


def _require_done(groups: Sequence[Group], place: Path, remedy: str) -> None:
    members = [member for group in groups for member in group.members]
    if any(group.runs for group in groups):
        return
    states = Counter(member.state for member in members)
    told = ", ".join(f"{count} {state}" for state, count in states.items()) or "no runs"
    faults = "".join(f"; {m.path}: {m.fault}" for m in members if m.state == DAMAGED)
    raise PlanError([Problem(str(place), f"nothing here is done yet ({told}){faults}", remedy)])


def _require_alike(runs: Sequence[Run]) -> None:
    """PlanError unless runs draw the same kind of sample and have a score in common."""
    kinds: dict[str, Run] = {}
    for run in runs:
        kinds.setdefault(run.media or "nothing", run)
    kinds.pop("nothing", None)
    if len(kinds) > 1:
        message = "; ".join(f"{run.path} draws {media}" for media, run in kinds.items())
        remedy = f"rlfactory report {next(iter(kinds.values())).path}"
        raise PlanError([Problem("report", f"these runs make no table: {message}", remedy)])
    if runs and not _scores(runs):
        named = {", ".join(_scores([run])) or "none": run for run in runs}
        message = "; ".join(f"{run.path} has {scores}" for scores, run in named.items())
        remedy = f"rlfactory report {runs[0].path}"
        raise PlanError([Problem("report", f"no held-out score is in all runs: {message}", remedy)])


def _scores(runs: Sequence[Run]) -> list[str]:
    """The held-out scores that all runs have."""
    first = [name for name in runs[0].series if name.startswith("eval/") and name.endswith("/mean")]
    shared = [name for name in first if all(name in run.series for run in runs)]
    return [name.removeprefix("eval/").removesuffix("/mean") for name in shared]


def _columns(runs: Sequence[Run]) -> list[Column]:
    """The first score before training, all after it, and what else is known of the samples."""
    scores = _scores(runs)
    begin = Column("before", f"{scores[0]} before", f"before/{scores[0]}", "neither")
    after = [Column(name, name, f"eval/{name}") for name in scores]
    others = {"diversity": "diversity", "kl": "KL a token"}
    known = [name for name in others if any(f"eval/{name}" in run.series for run in runs)]
    return [begin, *after, *(Column(n, others[n], f"eval/{n}", "neither") for n in known)]


def _other_prompts(runs: Sequence[Run]) -> list[str]:
    """A sentence where runs are judged by other prompts than each other."""
    asked = {repr((run.config.get("prompts"), _held_out(run))) for run in runs}
    return ["Not all runs are judged by the same held-out prompts."] if len(asked) > 1 else []


def _held_out(run: Run) -> object:
    evaluation = run.config.get("evaluation")
    return evaluation.get("prompts") if isinstance(evaluation, dict) else None
