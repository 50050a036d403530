"""`rlfactory sync`: logs all of a run afterwards, after a failure or to another logger."""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.config.checks.rules import component_problems
from rlfactory.config.overrides import override_frozen
from rlfactory.config.problems import PlanError, Problem, override_key
from rlfactory.config.words import SEARCHPATH
from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers import Logger, Several
from rlfactory.run.loggers.base import log_samples
from rlfactory.run.metrics import read

Config = Mapping[str, Any]


def chosen_logger(frozen: Config, overrides: Sequence[str]) -> Config:
    """A run's configuration with the logger that `overrides` choose, else PlanError."""
    keys = [override_key(word) for word in overrides]
    message = "can't be changed any more; allowed is logger"
    if refused := [k for k in keys if k.split(".")[0] != "logger" and k != SEARCHPATH]:
        raise PlanError([Problem(key, message) for key in refused])
    composed = override_frozen(frozen, overrides)
    if problems := [*composed.problems, *component_problems(composed.values, "logger")]:
        raise PlanError(problems)
    if composed.choices.get("logger") == "jsonl":
        message = "the run has no logger, only metrics.jsonl; name one"
        raise PlanError([Problem("logger", message, "logger=wandb")])
    return composed.values


def replay_to_logger(run: Path, config: Config) -> int:
    """Log all of a run to its logger, or to each part of several; returns the exit code."""
    from rlfactory.config.schema.targets import instantiate

    made, code = instantiate(config["logger"], "logger"), 0
    parts = made.parts if isinstance(made, Several) else {type(made).__name__: made}
    for name, logger in parts.items():
        try:
            count = replay_run(logger, RunFolder(run), config)
        except Exception as error:  # a service's client may raise anything
            reason = str(error).strip() or type(error).__name__
            print(f"error: {run}: {name}: {reason}", file=sys.stderr)
            code = 1
        else:
            print(f"{run}: {name} has {count} lines of metrics and the samples")
    return code


def replay_run(logger: Logger, folder: RunFolder, config: Mapping[str, Any]) -> int:
    """Log all metrics and samples of a run from the beginning; returns the lines of metrics."""
    records, sets = read(folder.metrics), folder.evaluated_sets()
    samples = [(done, path, n) for n, own in sets.items() for done, path in own.shown().items()]
    logger.restart(folder.path)
    logger.start(folder.path, config)
    for record in records:
        iteration = int(record["iteration"] or 0)
        # samples of an evaluation are logged before the metrics of the next iteration
        for shown in [shown for shown in samples if shown[0] <= iteration]:
            log_samples(logger, *shown)
            samples.remove(shown)
        values = {name: math.nan if v is None else v for name, v in record.items()}
        logger.log(iteration, {n: v for n, v in values.items() if n not in ("iteration", "time")})
    logger.finish()
    return len(records)
