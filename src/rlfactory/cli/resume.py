"""The folder of a run: made for a new one; for one that has begun, configurations are compared, and
it goes on or is refused.
"""

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory.config.checks.prompt_files import undownloaded_prompts
from rlfactory.config.frozen import (
    MISSING,
    Difference,
    differences,
    format_value,
    frozen_file_problems,
    try_frozen,
    upgrade,
)
from rlfactory.config.plan import Plan
from rlfactory.config.problems import PlanError, Problem
from rlfactory.run.atomic_write import write_text
from rlfactory.run.folder import RunFolder, RunFolderError, not_writable, require_unused
from rlfactory.run.inputs import keep_inputs
from rlfactory.run.lock import require_free
from rlfactory.tools.extend import is_done, keep_config
from rlfactory.train.process.begun_code import remember_code
from rlfactory.utils.data_files import load_yaml
from rlfactory.utils.dotted_keys import with_absolute_paths

Config = Mapping[str, Any]


def existing_config(plan: Plan) -> Config | None:
    """The configuration of the run in a plan's `run_dir`; None if none can be read."""
    path = RunFolder(plan.run_dir).config
    is_there = plan.config["run_dir"] is not None and os.path.isfile(path)  # not for invalid names
    return try_frozen(path) if is_there else None


def require_same(plan: Plan, frozen: Config) -> None:
    """Raise PlanError, with a problem for each key that differs, if a plan is another run."""
    problems = frozen_file_problems(frozen)
    if problems:
        raise PlanError([Problem(f"{plan.run_dir}: {p.key}", p.message) for p in problems])
    found = _differences(plan, frozen)
    old, new = frozen["iterations"], plan.config["iterations"]
    if {key for key, *_ in found} == {"iterations"} and new > old:
        command = f"rlfactory resume {shlex.quote(str(plan.run_dir))} --until {new}"
        message = f"the run in {plan.run_dir} has {old}, and now it is {new}; `{command}`"
        raise PlanError([Problem("iterations", f"{message} extends it", command)])
    for key, old, new in found:
        began = f"the run in {plan.run_dir} began with {format_value(old)}"
        remedy = "" if MISSING in (old, new) else f"{key}={format_value(old)}"
        problems.append(Problem(key, f"{began}, and now it is {format_value(new)}", remedy))
    if problems:
        last = problems[-1]
        hint = f"{last.message}; --force goes on all the same, run_dir=FOLDER begins another run"
        raise PlanError([*problems[:-1], Problem(last.key, hint, last.fix)])


def replaces(plan: Plan, frozen: Config) -> bool:
    """Whether a plan may take the folder of another run, which has saved no checkpoint."""
    folder = RunFolder(plan.run_dir)
    if folder.has_checkpoint or not folder.status.is_file() or folder.read_status() == "done":
        return False
    require_unlocked(plan.run_dir, take_over=False)
    return bool(_differences(plan, frozen))


def _differences(plan: Plan, frozen: Config) -> list[Difference]:
    """A plan's differences from a run's upgraded configuration, whose paths may be relative."""
    return differences(with_absolute_paths(frozen), upgrade(load_yaml(plan.frozen())))


def require_usable(plan: Plan) -> None:
    """PlanError if a plan's run folder can't be written, or another run uses it."""
    try:
        if (frozen := existing_config(plan)) is None:
            require_unused(plan.run_dir)
        elif not replaces(plan, frozen):
            require_same(plan, frozen)
    except RunFolderError as error:
        raise unusable(error) from error


def require_unlocked(path: Path, take_over: bool) -> None:
    """Raise PlanError if another process holds the lock of a run folder."""
    try:
        require_free(path, take_over)
    except RunFolderError as error:
        raise PlanError([Problem("run_dir", str(error))]) from error


def resume_run(plan: Plan, frozen: Config, force: bool, take_over: bool) -> int:
    """Resume the run in a plan's folder; with `force`, under the plan's configuration."""
    from rlfactory.train.process.launch import run_or_launch
    from rlfactory.train.process.run_arguments import RunArguments

    config = resumable(plan, frozen, force, take_over)
    if config is None:
        return 0
    return run_or_launch(RunArguments(plan.run_dir, force=force, take_over=take_over), config)


def resumable(plan: Plan, frozen: Config, force: bool, take_over: bool = False) -> Config | None:
    """The configuration under which the run in a plan's folder goes on; None if it is done.

    With `force` that is the plan's, which replaces the run's.
    """
    require_unlocked(plan.run_dir, take_over)
    if not force:
        require_same(plan, frozen)
    if force and differences(frozen, load_yaml(plan.frozen())):
        folder = RunFolder(plan.run_dir)
        keep_config(folder)
        remember_code(folder, plan.config)
        write_text(folder.config, plan.frozen())
        write_text(folder.plan, plan.table())
    elif is_done(plan.run_dir, frozen):
        return None
    return plan.config if force else frozen


def create_run(
    plan: Plan, command: str, objects: Mapping[str, str] | None = None, *, replace: bool = False
) -> None:
    """Make a plan's run folder, with the plan, the command and the frozen configuration.

    Args:
        plan: the plan of the run.
        command: what was typed or called.
        objects: descriptions of the objects in memory that the configuration refers to, by name.
        replace: remove the run that is in the folder.

    Raises:
        PlanError: the folder is in use, or can't be written; a file is not downloaded.
    """
    if problems := [*undownloaded_prompts(plan.config)]:
        raise PlanError(problems)
    try:
        folder = RunFolder.create(plan.run_dir, clear=replace)
        folder.plan.write_text(plan.table(), encoding="utf-8")
        folder.command.write_text(f"{command}\n", encoding="utf-8")
        if objects:
            folder.objects.write_text(json.dumps(objects, indent=1) + "\n", encoding="utf-8")
        keep_inputs(folder, plan.config)
        remember_code(folder, plan.config)
        write_text(folder.config, plan.frozen())  # last: with this file the run has begun
    except RunFolderError as error:
        raise unusable(error) from error
    except OSError as error:
        raise unusable(not_writable(plan.run_dir, error)) from error


def unusable(error: RunFolderError) -> PlanError:
    """The problem of a run folder that can't be used."""
    return PlanError([Problem("run_dir", str(error).removeprefix("run_dir: "), "run_dir=null")])
