"""Several runs from one command by `-m`: all combinations of values, one after the other."""

import re
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
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
from rlfactory.sweep.table import Job


def run_jobs(words: Sequence[str], start: Callable[[Plan], int]) -> int:
    """Plan all jobs, then run them; after a failed job the others still run.

    Args:
        words: the overrides of the command, swept ones among them.
        start: runs a job and returns its exit code.

    Returns:
        1 if a job failed, else 0.
    """
    sweep = Path("multirun") / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    failed = []
    for name, plan in planned_jobs(words, sweep).items():
        try:
            code = start(plan)
        except PlanError as error:
            print(report(error.problems, words), file=sys.stderr)
            code = 2
        except Exception:  # a defect of one job must not end the others
            traceback.print_exc()
            code = 1
        if code == 130:
            raise KeyboardInterrupt
        if code > 128:  # preempted: no time for another job
            sys.exit(code)
        if code:
            failed.append(f"{name} (exit code {code})")
    if failed:
        print("failed: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


LONGEST_NAME = 120
"""Characters of a job's name; the disk allows 255 bytes."""


def planned_jobs(words: Sequence[str], sweep: Path = Path("multirun/DATE_TIME")) -> dict[str, Plan]:
    """The plan of every job by what distinguishes it from the others, in the order in which they
    run; each with the folder of the multirun that is passed by.

    Args:
        words: the overrides of the command, swept ones among them.
        sweep: the folder of the multirun, for jobs without `run_dir`.

    Raises:
        PlanError: with the problems of all jobs, each once with its jobs.
    """
    choices = job_words([*words, *swept_by_files(words)])
    folders = {word for job in choices for word in job if override_key(word) == "run_dir"}
    parent = None if len(folders) > 1 else _folder(folders, sweep)
    jobs = [
        Job(name, "", name, [*own, *([f"run_dir={typed_value(parent / name)}"] if parent else [])])
        for name, own in zip(job_names(choices), choices, strict=True)
    ]
    plans = plans_of([replace(job, overrides=last_words(job.overrides)) for job in jobs])
    problems: list[Problem] = []
    for name, plan in plans.items():
        try:
            require_usable(plan)
        except PlanError as error:
            problems += [with_jobs(problem, [name], len(plans)) for problem in error.problems]
    if problems:
        raise PlanError(problems)
    return plans


def _folder(words: Collection[str], sweep: Path) -> Path:
    """The folder of all runs: `run_dir` where it was typed, else that of the multirun."""
    typed = next((parse([word])[0].value() for word in words), None)
    return sweep if typed is None else Path(str(typed))


def swept_by_files(words: Sequence[str]) -> list[str]:
    """What the chosen files sweep over (`hydra.sweeper.params`), but for keys that are typed."""
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
    names = [_as_file_name(text) or "default" for text in own]
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


def _as_file_name(text: str) -> str:
    return re.sub(r"[^\w=.,+-]+", "_", text)
