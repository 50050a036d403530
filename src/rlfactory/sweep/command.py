"""The command `rlfactory sweep`: print the plan of a table, then run its jobs."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from rlfactory.config.options import first_comment
from rlfactory.config.plan import Plan
from rlfactory.config.problems import PlanError, Problem, unknown_name
from rlfactory.config.user_code import untrusted
from rlfactory.hardware.process_environment import installed_gpus, visible_gpu_names
from rlfactory.sweep.display import LiveTable, outcome_lines, plan_lines
from rlfactory.sweep.jobs import (
    columns_of,
    first_measured,
    jobs_of,
    plans_of,
    rows_of,
    seeds_of,
    share_stages,
    size_of,
    slug,
)
from rlfactory.sweep.process import (
    HydraLauncher,
    Pool,
    Runner,
    StopRequest,
    cores,
    environment,
    launch_of,
    listening,
    require_launcher,
)
from rlfactory.sweep.search import Search, search_of
from rlfactory.sweep.sweep_arguments import SweepArguments, read_request
from rlfactory.sweep.sweep_file import SweepFile, file_of, read_sheet, sweeps
from rlfactory.sweep.sweep_folder import LOGS, default_folder, locked, merge_table
from rlfactory.sweep.table import Job, Table
from rlfactory.utils.text import is_override


def gpus(asked: Sequence[str] | None = None) -> list[str]:
    """The GPUs asked for, else all that this process may see; torch is not needed to know."""
    if asked is not None:
        return [*asked]
    names = visible_gpu_names()
    return [gpu.index for gpu in installed_gpus()] if names is None else names


def gpu_of(slot: int, names: Sequence[str]) -> str | None:
    """The GPU of the jobs in a slot, one slot after the other."""
    return names[slot % len(names)] if names else None


@dataclass(frozen=True)
class Sweep:
    """A sweep whose jobs are all checked.

    `grid` has the jobs of rows, axes and seeds; `jobs` those to run, which in a search are trials.
    """

    request: SweepArguments
    sheet: SweepFile
    table: Table
    grid: list[Job]
    jobs: list[Job]
    plans: dict[str, Plan]
    folder: Path
    search: Search | None


def sweep(words: Sequence[str]) -> int:
    """Print the plan and, without `--plan`, run what is not done; without a name list sweeps."""
    words = sorted(words, key=lambda word: word.startswith("-"))  # the name first
    if not words or is_override(words[0]):
        print("sweeps, each a published table; rlfactory sweep NAME [size=tiny] [--plan]")
        for name, path in sweeps().items():
            print(f"  {name:<20} {first_comment(path)}")
        return 0
    asked = prepared(read_request(words))
    lines = plan_lines(asked.sheet, asked.table, asked.jobs, asked.plans, asked.folder)
    of_search = [] if asked.search is None else asked.search.lines()
    print("\n".join([*lines, *of_search]), flush=True)
    return 0 if asked.request.only_plan else run(asked, words)


def prepared(request: SweepArguments) -> Sweep:
    """Make the jobs of a sweep and check them; PlanError with all that is wrong."""
    path = file_of(request.name)
    sheet = read_sheet(path)
    size = size_of(sheet, request.size)
    columns, name = columns_of(sheet, size), Path(request.name).stem
    seeds = request.seeds if request.seeds is not None else seeds_of(sheet, size)
    folder = request.folder or default_folder(name, size)
    grid = jobs_of(sheet, size, request.typed, request.axes, seeds)
    search = search_of(request, sheet, size, first_measured(columns), folder)
    grid = _of_rows(grid if search else share_stages(grid), request.rows)
    require_launcher(request.launcher, request.launcher_words)
    table = Table(name, size, sheet.about, columns, rows_of(sheet), grid)
    jobs = search.known(grid) if search else grid
    tried = search.probes(grid) + jobs if search else grid
    _require_typed([*grid, *tried], request.typed)
    plans = plans_of(tried)
    if problems := [p for plan in plans.values() for p in untrusted(plan.config, request.typed)]:
        raise PlanError([*dict.fromkeys(problems)])
    table = merge_table(folder, replace(table, jobs=jobs, claims=sheet.claims, tasks=sheet.tasks))
    return Sweep(request, sheet, table, grid, jobs, plans, folder, search)


def _require_typed(jobs: Sequence[Job], typed: Sequence[str]) -> None:
    """PlanError if the file reads environment variables: what it reads is written down and sent."""
    words = {word for job in jobs for word in job.overrides if "oc.env" in word}
    if found := sorted(words.difference(typed)):
        name = found[0].partition("oc.env")[2].strip(":}' ")
        message = f"{found[0]} in a file of a sweep reads the environment variable {name}"
        raise PlanError([Problem("overrides", f"{message}; type it after the command instead")])


def _of_rows(jobs: list[Job], asked: Sequence[str]) -> list[Job]:
    """The jobs of the rows with these slugs or patterns, or of all, and their earlier stages."""
    known = list(dict.fromkeys(slug(job.row) for job in jobs))
    if (whole := slug(",".join(asked))) in known:  # commas may be of one row's title
        asked = [whole]
    for name in asked:
        if not any(fnmatch(row, name) for row in known):
            raise PlanError([unknown_name("rows", "row", name, known)])
    kept = [j for j in jobs if not asked or any(fnmatch(slug(j.row), name) for name in asked)]
    if not kept:
        raise PlanError([Problem("rows", "nothing is run for any row in this size")])
    needed = {job.name for job in kept}
    for job in reversed(jobs):
        if job.name in needed and job.after:
            needed.add(job.after)
    return [job for job in jobs if job.name in needed]


def run(asked: Sweep, words: Sequence[str]) -> int:
    """Run the jobs; returns 0, 1 if any failed, or 128 + the number of a signal that stopped it."""
    measure = first_measured(asked.table.columns).measure  # of a reward, whose name is shown
    score = measure.partition("/")[2].removeprefix("reward/").removesuffix("/mean")
    iterations = {name: plan.config["iterations"] for name, plan in asked.plans.items()}
    board = LiveTable(asked.jobs, asked.folder, iterations, score, sys.stdout)
    with locked(asked.folder), listening() as stop:
        asked.table.save(asked.folder)  # before any job, so that the folder is known as a sweep
        (asked.folder / LOGS).mkdir(exist_ok=True)
        with board.shown():
            runner, jobs = _runner(asked, board, stop), asked.jobs
            if asked.search is None:
                runner([launch_of(job, asked.folder) for job in jobs])
            else:
                jobs = asked.search.run(jobs, asked.grid, asked.table, runner, board.add, stop)
    print("\n".join(["", *outcome_lines(jobs, asked.folder, board.states, score)]))
    if asked.search is not None:
        print("\n".join(asked.search.best_lines(jobs)))
    if stop:
        typed = shlex.join(["rlfactory", "sweep", *words])
        print(f"stopped; finished and partial runs are kept. To resume: {typed}", file=sys.stderr)
        return 128 + stop[0]
    return 0 if all(board.states[job.name] == "done" for job in jobs) else 1


def _runner(asked: Sweep, board: LiveTable, stop: StopRequest) -> Runner:
    """The runner of jobs: a pool of processes, or one of Hydra's launchers."""
    request = asked.request
    local = request.launcher in ("pool", "basic", "joblib")
    names = gpus(request.gpus) if local or request.gpus else []
    at_once = request.jobs or max(1, len(names))
    threads = max(1, cores() // at_once) if local else None
    of = f"{asked.table.name}-{asked.table.size}"
    environments = [environment(of, threads, gpu_of(slot, names)) for slot in range(at_once)]
    if request.launcher in ("pool", "basic"):
        return Pool(environments, board, stop)
    return HydraLauncher(request, asked.folder, environments, board, stop)
