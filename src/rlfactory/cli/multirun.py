"""Hydra's command line: multiruns with a run folder for each job, `--cfg` and completion."""

import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from rlfactory.cli.flags import COMPLETION_FLAGS, MULTIRUN_FLAGS, flags_first
from rlfactory.cli.resume import require_usable
from rlfactory.config import _hydra
from rlfactory.config._hydra import Override
from rlfactory.config.composition import ComposedConfig
from rlfactory.config.named_models import with_options
from rlfactory.config.options import options
from rlfactory.config.overrides import compose, plan_composed
from rlfactory.config.plan import Plan
from rlfactory.config.problems import PlanError, Problem, override_key, report
from rlfactory.config.schema.root import GROUPS
from rlfactory.config.words import SEARCHPATH, force_add, read, searched
from rlfactory.sweep.jobs import with_jobs

SWEEPER = "hydra/sweeper"
"""Chooses what draws the jobs one by one, so that they are not known in advance."""


def hydra_command(argv: Sequence[str], launch: Callable[[ComposedConfig], int]) -> int:
    """Run a command with Hydra's flags (`-m`, `--cfg`, ...).

    All jobs are planned, and their problems reported, before the first one begins. After a failed
    job the others still run.

    Args:
        argv: the words of the command line.
        launch: runs a job and returns its exit code.

    Returns:
        1 if a job failed, else 0.
    """
    wants_completion = COMPLETION_FLAGS & {*argv}
    if wants_completion and complete(argv):
        return 0
    if not wants_completion:
        argv = with_options(argv, searched([word for word in argv if "=" in word]))
    # `query=bash` and the like are no overrides
    words = [] if wants_completion else [w for w in argv if "=" in w and w[0] != "-"]
    names = []
    if not MULTIRUN_FLAGS & {*argv}:
        if problems := compose(words).problems:
            raise PlanError(problems)
    elif not any(override_key(word) == SWEEPER for word in words):
        if own := swept_by_files(words):
            words = [*words, *own]
            argv = [*argv, *own, "hydra.sweeper.params=null"]
        names = [*planned_jobs(words)]
    failed: list[str] = []
    typed_places = [word for word in words if override_key(word) == SEARCHPATH]

    def job(overrides: list[str], sweep: Path, number: int) -> None:
        own = ",".join(o for o in overrides if o not in argv)
        name = names[number] if names else numbered(number, own)
        # Hydra knows no recipes, nor names that depend on the model
        composed = compose([*typed_places, *overrides])
        composed.values["run_dir"] = job_folder(composed, words, sweep, name)
        try:
            code = launch(composed)
        except PlanError as error:
            print(report(error.problems, overrides), file=sys.stderr)
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

    recipe = [] if MULTIRUN_FLAGS & {*argv} or wants_completion else _recipe_word(words)
    _hydra.main(job, [*map(force_add, flags_first(argv)), *recipe])
    if failed:
        print("failed: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


def _recipe_word(words: Sequence[str]) -> list[str]:
    """The choice of a recipe that `--cfg` shows; empty if one is typed or there is none."""
    recipe = compose(words).choices.get("recipe", "none")
    typed = {override_key(word) for word in words}
    return [] if recipe == "none" or "recipe" in typed else [f"recipe={recipe}"]


def complete(argv: Sequence[str]) -> bool:
    """Print the completions that a shell asks for, if they are options of a group.

    Returns:
        False if Hydra must answer instead; `COMP_LINE` is then set to what it understands.
    """
    line = without_subcommand(os.environ.get("COMP_LINE", ""))
    completions = complete_option(line) if any(word.startswith("query=") for word in argv) else None
    if completions is not None:
        print(("\n" if "query=fish" in argv else " ").join(completions))
        return True
    os.environ["COMP_LINE"], os.environ["COMP_POINT"] = line, str(len(line))
    return False


def complete_option(line: str) -> list[str] | None:
    """Completions of a line's last word `GROUP=PREFIX`; None if the word is no such override.

    Hydra itself does not list options in subfolders, such as `experiment=peer/nft`.
    """
    group, equals, prefix = line.rpartition(" ")[2].partition("=")
    if group not in GROUPS or not equals:
        return None
    return [f"{group}={name}" for name in options(group) if name.startswith(prefix)]


def without_subcommand(line: str) -> str:
    """`rlfactory check algo=nft se` as `rlfactory algo=nft se`, which Hydra can complete."""
    command, *words = line.split(" ")
    return " ".join([command, *(word for word in words[:-1] if "=" in word), *words[-1:]])


LONGEST_NAME = 120
"""Characters of a job's name; the disk allows 255 bytes."""


def swept_by_files(words: Sequence[str]) -> list[str]:
    """What the chosen files sweep over (`hydra.sweeper.params`), but for keys that are typed."""
    typed = {override_key(word) for word in words}
    found = compose(job_words(with_options(words, searched(words)))[0]).swept
    return [word for word in found if override_key(word) not in typed]


def _sweep_folder(words: Sequence[str]) -> Path:
    """The folder of a multirun, as far as it is known before it begins."""
    typed = [o for w in words if override_key(w) == "hydra.sweep.dir" and (o := read(w, []))]
    folder = str(typed[-1].value()) if typed else ""
    return Path("multirun/DATE_TIME" if "$" in folder or not folder else folder)


def planned_jobs(words: Sequence[str]) -> dict[str, Plan]:
    """The plan of every job by what distinguishes it from the others, in the order in which they
    run; each with the folder of the multirun that is passed by.

    Args:
        words: the overrides of the command, swept ones among them.

    Raises:
        PlanError: with the problems of all jobs, each once; those of some of the jobs name these.
    """
    words = [*words, *swept_by_files(words)]
    choices, sweep = job_words(with_options(words, searched(words))), _sweep_folder(words)
    names = job_names(choices)
    jobs, faults = dict[str, Plan](), dict[tuple[str, str], dict[str, Problem]]()
    for name, own in zip(names, choices, strict=True):
        try:
            composed = compose(own)
            composed.values["run_dir"] = job_folder(composed, words, sweep, name)
            jobs[name] = plan_composed(composed)
            require_usable(jobs[name])
        except PlanError as error:
            for problem in error.problems:
                faults.setdefault((problem.key, problem.message), {})[name] = problem
    if faults:
        raise PlanError(
            _of_all_jobs([*found.values()])
            if len(found) == len(names)
            else with_jobs(Problem(*fault), [*found], len(names))  # a fix would change the others
            for fault, found in faults.items()
        )
    return jobs


def job_words(words: Sequence[str]) -> list[tuple[str, ...]]:
    """The overrides of each job; an interval is its start.

    Raises:
        PlanError: a word can't be read, or has an interval and no search draws from it.
    """
    problems: list[Problem] = []
    parsed = [o for word in words if (o := read(word, problems)) is not None]
    if problems:
        raise PlanError(problems)
    own = [o for o in parsed if o.key_or_group == SEARCHPATH or not o.is_hydra_override()]
    keys = [o.key_or_group for o in own if o.is_interval_sweep()]
    if keys and SWEEPER not in map(override_key, words):
        message = "is an interval, from which a search alone draws; list values, or type"
        raise PlanError(Problem(key, f"{message} {SWEEPER}=optuna") for key in keys)
    return [*product(*map(values_of, own))]


def job_names(jobs: Sequence[Sequence[str]]) -> list[str]:
    """A name for each job: the overrides in which it differs from another one.

    Names that are long, or equal once they are names of folders, begin with the job's number.
    """
    shared = set(jobs[0]).intersection(*jobs) if len(jobs) > 1 else set[str]()
    own = (",".join(word for word in job if word not in shared) for job in jobs)
    names = [_as_file_name(text) or "default" for text in own]
    if len(set(names)) == len(names) and max(map(len, names)) <= LONGEST_NAME:
        return names
    return [numbered(number, job) for number, job in enumerate(names)]


def numbered(number: int, name: str) -> str:
    """A name that begins with the number of its job, as short as a folder's name has to be."""
    return f"{number:03d}_{_as_file_name(name)}"[:LONGEST_NAME]


def job_folder(composed: ComposedConfig, words: Sequence[str], sweep: Path, name: str) -> str:
    """The run folder of a job: below `run_dir` where it was typed, and that itself if it varies."""
    typed = next((w for w in reversed(words) if override_key(w) == "run_dir"), None)
    own = composed.values["run_dir"]
    if typed is None or own is None:
        return str(sweep / name)
    varies = len({*job_words([typed])}) > 1
    return str(own) if varies else str(Path(own) / name)


def values_of(override: Override) -> list[str]:
    """An override once for each value of its sweep."""
    line = override.input_line or ""
    if not override.is_sweep_override():
        return [line]
    key = line.partition("=")[0]
    value: Any = override.value()
    if override.is_interval_sweep():
        return [f"{key}={value.start}"]
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


def _of_all_jobs(found: Sequence[Problem]) -> Problem:
    """A problem that each job has; the values that its fix has in the jobs are a sweep."""
    first = found[0]
    words = [problem.instead for problem in found if problem.instead is not None]
    if len(words) == len(found) and len({tuple(map(override_key, own)) for own in words}) == 1:
        swept = tuple(map(_swept, zip(*words, strict=True)))
        return Problem(first.key, first.message, instead=swept)
    fix = first.fix if len({problem.fix for problem in found}) == 1 else ""
    return Problem(first.key, first.message, fix)


def _swept(words: Sequence[str]) -> str:
    """Overrides of one key as one override with all of their values."""
    values = dict.fromkeys(word.partition("=")[2] for word in words)
    return f"{words[0].partition('=')[0]}={','.join(values)}" if len(values) > 1 else words[0]


def _as_file_name(text: str) -> str:
    return re.sub(r"[^\w=.,+-]+", "_", text)
