"""Hydra's command line: multiruns with a run folder for each job, `--cfg` and completion."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from rlfactory.cli.multirun_jobs import job_folder, numbered, planned_jobs
from rlfactory.cli.words import COMPLETION_FLAGS, MULTIRUN_FLAGS, flags_first
from rlfactory.config import _hydra
from rlfactory.config._hydra import ComposedConfig
from rlfactory.config.named_models import with_options
from rlfactory.config.options import options
from rlfactory.config.overrides import compose
from rlfactory.config.problems import PlanError, override_key, report
from rlfactory.config.schema.root import GROUPS
from rlfactory.config.words import SEARCHPATH, force_add, searched

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
        names = [job.name for job in planned_jobs(words)]
    failed: list[str] = []
    typed_places = [word for word in words if override_key(word) == SEARCHPATH]

    def job(overrides: list[str], sweep: Path, number: int) -> None:
        name = (
            names[number]
            if names
            else numbered(number, ",".join(o for o in overrides if o not in argv))
        )
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
