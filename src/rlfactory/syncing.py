"""A run's record told to a logger afterwards: one that failed, or one that it did not have."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.plan import component_problems
from rlfactory.problems import PlanError, Problem, key_of
from rlfactory.request import SEARCHPATH, amend

Config = Mapping[str, Any]


def chosen_logger(frozen: Config, overrides: Sequence[str]) -> Config:
    """A run's configuration with the logger that is asked for; PlanError if it is none."""
    keys = [key_of(word) for word in overrides]
    message = "can't be changed by now; allowed is logger"
    if refused := [k for k in keys if k.split(".")[0] != "logger" and k != SEARCHPATH]:
        raise PlanError([Problem(key, message) for key in refused])
    composed = amend(frozen, overrides)
    if problems := [*composed.problems, *component_problems(composed.values, "logger")]:
        raise PlanError(problems)
    if composed.choices.get("logger") == "jsonl":
        message = "the run has none besides metrics.jsonl; name one"
        raise PlanError([Problem("logger", message, "logger=wandb")])
    return composed.values


def told(run: Path, config: Config) -> int:
    """Tell the logger or, of several, each by itself; the exit code."""
    from rlfactory.run.folder import RunFolder
    from rlfactory.run.loggers.several import parts_of
    from rlfactory.run.telling import tell_all
    from rlfactory.targets import instantiate

    code = 0
    for name, logger in parts_of(instantiate(config["logger"], "logger")).items():
        try:
            count = tell_all(logger, RunFolder(run), config)
        except Exception as error:  # whatever a service may do
            reason = str(error).strip() or type(error).__name__
            print(f"error: {run}: {name}: {reason}", file=sys.stderr)
            code = 1
        else:
            print(f"{run}: {name} has {count} lines of metrics and the samples")
    return code
