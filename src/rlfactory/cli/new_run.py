"""Making the folder of a new run, for the command and for the Python interface."""

import json
from collections.abc import Mapping

from rlfactory.config.checks.prompt_files import undownloaded_prompts
from rlfactory.config.plan import Plan
from rlfactory.config.problems import PlanError, Problem
from rlfactory.run.atomic_write import write_text
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.inputs import keep_inputs
from rlfactory.train.process.begun_code import remember_code


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
    except (RunFolderError, OSError) as error:
        raise unusable(error) from error


def unusable(error: Exception) -> PlanError:
    """The problem of a run folder that can't be used."""
    return PlanError([Problem("run_dir", str(error).removeprefix("run_dir: "), "run_dir=null")])
