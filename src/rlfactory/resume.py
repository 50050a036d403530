"""The same command once more: whether a run has begun in its folder, and is the same run."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlfactory.launch import Sitting, sit
from rlfactory.older import frozen_problems
from rlfactory.plan import Plan
from rlfactory.problems import PlanError, Problem
from rlfactory.run.atomic import write_text
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.owner import require_free
from rlfactory.sameness import MISSING, differences, shown

Config = Mapping[str, Any]


def begun_in(plan: Plan) -> Config | None:
    """The configuration that a run began with in the folder that was asked for, if one did."""
    path = RunFolder(plan.run_dir).config
    if plan.config["run_dir"] is None or not os.path.isfile(path):  # false for impossible names too
        return None
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return found if isinstance(found, dict) and "iterations" in found else None


def require_same(plan: Plan, frozen: Config) -> None:
    """PlanError, a problem for each key in which a plan is not the run that began in its folder."""
    problems = frozen_problems(frozen)
    if problems:
        raise PlanError([Problem(f"{plan.run_dir}: {p.key}", p.message) for p in problems])
    for key, old, new in differences(frozen, yaml.safe_load(plan.frozen())):
        message = f"the run in {plan.run_dir} began with {shown(old)}, and now it is {shown(new)}"
        remedy = "" if MISSING in (old, new) else f"{key}={shown(old)}"
        problems.append(Problem(key, message, remedy))
    if problems:
        last = problems[-1]
        hint = f"{last.message}; --force goes on all the same, run_dir=FOLDER begins another run"
        raise PlanError([*problems[:-1], Problem(last.key, hint, last.remedy)])


def require_owner(path: Path, take_over: bool) -> None:
    """PlanError where another process works in a run folder."""
    try:
        require_free(path, take_over)
    except RunFolderError as error:
        raise PlanError([Problem("run_dir", str(error))]) from error


def go_on(plan: Plan, frozen: Config, force: bool, take_over: bool = False) -> int:
    """Go on with the run in a plan's folder; with `force` under the plan's configuration."""
    folder = RunFolder(plan.run_dir)
    require_owner(plan.run_dir, take_over)
    if not force:
        require_same(plan, frozen)
    elif differences(frozen, yaml.safe_load(plan.frozen())):
        _replace(folder, plan)
        frozen = plan.config
    elif is_done(plan.run_dir, frozen):
        return 0
    if not force and is_done(plan.run_dir, frozen):
        return 0
    sitting = Sitting(plan.run_dir, force=force, take_over=take_over)
    return sit(sitting, plan.config if force else frozen)


def is_done(path: Path, frozen: Config) -> bool:
    """Whether nothing is left of a run; says so."""
    folder = RunFolder(path)
    if not folder.status.is_file() or folder.read_status() != "done":
        return False
    print(f"{path} is done, all of its {frozen['iterations']} iterations; see {folder.summary}")
    return True


def _replace(folder: RunFolder, plan: Plan) -> None:
    """Put a plan in the place of the one that a run began with, which is kept beside it."""
    former = (folder.path / f"config_{n}.yaml" for n in range(1, 10**6))
    kept = next(path for path in former if not path.exists())
    write_text(kept, folder.config.read_text(encoding="utf-8"))
    write_text(folder.config, plan.frozen())
    write_text(folder.plan, plan.table())
