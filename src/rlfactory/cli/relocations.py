"""New paths of a run's model and files, given on the command line after they were moved."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.config.problems import PlanError, Problem
from rlfactory.run.folder import RunFolder
from rlfactory.run.inputs import with_inputs
from rlfactory.utils.path_keys import absolute, file_of, path_values

HUB_ID = re.compile(r"(zoo:[\w-]+|[\w-][\w.-]*/[\w.-]+)")


def relocations(run: Path, words: Sequence[str], config: Mapping[str, Any]) -> dict[str, str]:
    """The paths by key that `KEY=PATH` words give, absolute where they are on this disk.

    Raises:
        PlanError: a word is no path of the run's configuration, or names nothing; or the run's
            model is gone, and no word says where it is.
    """
    known = path_values(config)
    moved, problems = {}, []
    for word in words:
        key, mark, value = word.partition("=")
        if not mark or key not in known:
            message = "is no path of this run"
            problems.append(Problem(key, f"{message}; what can be typed is {', '.join(known)}"))
        elif not os.path.exists(file_of(key, value)) and not HUB_ID.fullmatch(value):
            problems.append(Problem(key, f"{value} does not exist"))
        else:
            moved[key] = absolute(key, str(Path(value).expanduser()))
    located = with_inputs(config, RunFolder(run), moved)
    for key, value in path_values(located["model"], "model.").items():
        if os.path.isabs(value) and not os.path.exists(value) and key not in moved:
            problems.append(Problem(key, f"{value} is gone; type {key}=FOLDER, where it is now"))
    if problems:
        raise PlanError(problems)
    return moved
