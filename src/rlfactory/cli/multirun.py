"""Several runs from one command by `-m`: all combinations of values, one after the other."""

import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

from rlfactory.cli.resume import require_usable
from rlfactory.config._hydra import Override, parse
from rlfactory.config.options import options
from rlfactory.config.overrides import compose
from rlfactory.config.plan import Plan
from rlfactory.config.problems import PlanError, Problem, override_key, report
from rlfactory.config.words import read, typed_value
from rlfactory.sweep.jobs import last_words, plans_of, with_jobs
from rlfactory.sweep.process import (
    COMMAND,
    HydraLauncher,
    JobCommand,
    cores,
    environment,
    listening,
    require_launcher,
)
from rlfactory.sweep.sweep_arguments import SweepArguments, read_request
from rlfactory.sweep.sweep_folder import LOGS, state_of
from rlfactory.sweep.table import Job


def run_jobs(words: Sequence[str], start: Callable[[Plan], int]) -> int:
    """Plan all jobs, then run them; after a failed job the others still run.

    Args:
        words: the overrides of the command, swept ones among them, and those of a launcher.
        start: runs a job in this process and returns its exit code.

    Returns 1 if a job failed, else 0.
    """
    sweep = Path("multirun") / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    of_launcher = _of_launcher(words)
    request = read_request([sweep.name, *of_launcher])
    require_launcher(request.launcher, request.launcher_words)
    jobs = jobs_of(words, sweep)
    plans = _plans(jobs)
    if of_launcher:
        failed = _launched(jobs, plans, request, sweep)
    else:
        codes = {name: _code(plan, start, words) for name, plan in plans.items()}
        failed = [f"{name} (exit code {code})" for name, code in codes.items() if code]
    if failed:
        print("failed: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


def _of_launcher(words: Sequence[str]) -> list[str]:
    return [word for word in words if override_key(word).startswith(LAUNCHER)]


def _code(plan: Plan, start: Callable[[Plan], int], words: Sequence[str]) -> int:
    """The exit code of a job that is run here. SystemExit where it was preempted."""
    try:
        code = start(plan)
    except PlanError as error:
        print(report(error.problems, words), file=sys.stderr)
        return 2
    except Exception:  # a defect of one job must not end the others
        traceback.print_exc()
        return 1
    if code == 130:
        raise KeyboardInterrupt
    if code > 128:  # preempted: no time for another job
        sys.exit(code)
    return code


LAUNCHER = ("hydra/launcher", "hydra.launcher.")
"""How the words begin that choose and set up what starts the jobs."""


class _Printed:
    """Prints the states of jobs that run elsewhere."""

    def change(self, name: str, state: str) -> None:
        print(f"{name}: {state}", flush=True)

    def refresh(self) -> None:
        """Nothing."""


def _launched(
    jobs: Sequence[Job], plans: Mapping[str, Plan], request: SweepArguments, sweep: Path
) -> list[str]:
    """Run jobs by a launcher of Hydra; returns the names of those that are not done."""
    here = request.launcher in ("joblib", "submitit_local")
    at_once = min(len(jobs), cores()) if here else len(jobs)
    environments = [environment(sweep.name, cores() // at_once if here else None)] * at_once
    commands = []
    for job in jobs:  # the ordinary command, whose output stands in the folder of the multirun
        output, run = sweep / LOGS / f"{job.name}.log", plans[job.name].run_dir
        command = [*COMMAND, *job.overrides]
        commands.append(JobCommand(job, command, run, output.with_suffix(".lock"), output))
    with listening() as stop:
        HydraLauncher(request, sweep, environments, _Printed(), stop)(commands)
    return [command.job.name for command in commands if state_of(command.run) != "done"]


LONGEST_NAME = 120
"""Characters of a job's name; the disk allows 255 bytes."""


def planned_jobs(words: Sequence[str]) -> dict[str, Plan]:
    """The plan of each job by name, in order; PlanError has the problems of all, each once."""
    sweep = Path("multirun/DATE_TIME")
    # that there is such a launcher; whether it can be used here is asked where it is
    read_request([sweep.name, *_of_launcher(words)])
    return _plans(jobs_of(words, sweep))


def jobs_of(words: Sequence[str], sweep: Path) -> list[Job]:
    """The jobs, named by what distinguishes each from the others.

    Args:
        words: the overrides of the command, swept ones among them.
        sweep: the folder of the multirun, for jobs without `run_dir`.

    Raises:
        PlanError: a word can't be read, or has an interval.
    """
    words = [word for word in words if not override_key(word).startswith(LAUNCHER)]
    choices = job_words([*words, *swept_by_files(words)])
    folders = {word for job in choices for word in job if override_key(word) == "run_dir"}
    typed = parse([*folders])[0].value() if folders else None
    parent = sweep if typed is None else Path(str(typed))
    jobs = []
    for name, own in zip(job_names(choices), choices, strict=True):
        place = [] if len(folders) > 1 else [f"run_dir={typed_value(parent / name)}"]
        jobs.append(Job(name, "", name, last_words([*own, *place])))
    return jobs


def _plans(jobs: Sequence[Job]) -> dict[str, Plan]:
    """The plan of each job, whose run folder can be used."""
    plans = plans_of(jobs)
    problems: list[Problem] = []
    for name, plan in plans.items():
        try:
            require_usable(plan)
        except PlanError as error:
            problems += [with_jobs(problem, [name], len(plans)) for problem in error.problems]
    if problems:
        raise PlanError(problems)
    return plans


def swept_by_files(words: Sequence[str]) -> list[str]:
    """Sweeps of the chosen files (`hydra.sweeper.params`), but for keys that are typed."""
    typed = {override_key(word) for word in words}
    found = compose(job_words(words)[0]).composition
    swept = {} if found is None else found.swept
    return [f"{key}={values}" for key, values in swept.items() if key not in typed]


def job_words(words: Sequence[str]) -> list[tuple[str, ...]]:
    """The overrides of each job.

    Raises:
        PlanError: a word can't be read, or has an interval.
    """
    problems: list[Problem] = []
    parsed = [o for word in words if (o := read(word, problems)) is not None]
    message = "is an interval, from which a search alone draws (rlfactory sweep); list values"
    problems += [Problem(o.key_or_group, message) for o in parsed if o.is_interval_sweep()]
    if problems:
        raise PlanError(problems)
    return [*product(*map(values_of, parsed))]


def job_names(jobs: Sequence[Sequence[str]]) -> list[str]:
    """A name for each job: the overrides in which it differs from another one.

    Names that are long, or equal once they are names of folders, begin with the job's number.
    """
    shared = set(jobs[0]).intersection(*jobs) if len(jobs) > 1 else set[str]()
    own = (",".join(word for word in job if word not in shared) for job in jobs)
    names = [re.sub(r"[^\w=.,+-]+", "_", text) or "default" for text in own]
    if len(set(names)) == len(names) and max(map(len, names)) <= LONGEST_NAME:
        return names
    return [f"{number:03d}_{name}"[:LONGEST_NAME] for number, name in enumerate(names)]


def values_of(override: Override) -> list[str]:
    """An override once for each value of its sweep."""
    line = override.input_line or ""
    if not override.is_sweep_override():
        return [line]
    key = line.partition("=")[0]
    value: Any = override.value()
    if hasattr(value, "filter"):  # `glob(...)` of a group's options
        return [f"{key}={option}" for option in value.filter([*options(override.key_or_group)])]
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def describe_jobs(jobs: Mapping[str, Plan]) -> str:
    """The first job's plan, and of each other one the rows that differ from it."""
    shown, lines = set[str](), list[str]()
    for number, (name, plan) in enumerate(jobs.items(), start=1):
        rows = plan.table().splitlines()
        lines += ["", f"job {number} of {len(jobs)}: {name}", *(r for r in rows if r not in shown)]
        shown = shown or {*rows}
    return "\n".join(lines[1:])
