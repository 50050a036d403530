"""What a logger is told of a run: of an evaluation as it is made, or of everything at once."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers.base import Logger
from rlfactory.run.metrics import read
from rlfactory.run.samples import SampleTable

GRID, TABLE = "eval/samples", "eval/table"


def tell_samples(logger: Logger, iteration: int, shown: Path) -> None:
    """An evaluation's picture, if it has one, and its table, if there is one beside it."""
    beside = shown.with_suffix(".json")
    table = SampleTable.load(beside) if beside.is_file() else None
    if shown.suffix == ".png":
        logger.images(iteration, GRID, shown, "" if table is None else table.title)
    if table is not None:
        logger.table(iteration, TABLE, table)


def tell_all(logger: Logger, folder: RunFolder, config: Mapping[str, Any]) -> int:
    """Everything that a run folder holds, as if there had been nothing; returns how many lines of
    metrics that were.
    """
    records, samples = read(folder.metrics), _evaluations(folder)
    logger.anew(folder.path)
    logger.start(folder.path, config)
    for record in records:
        iteration = int(record["iteration"] or 0)
        for done in [done for done in samples if done <= iteration]:
            tell_samples(logger, done, samples.pop(done))
        logger.log(iteration, _values(record))
    logger.finish()
    return len(records)


def _evaluations(folder: RunFolder) -> dict[int, Path]:
    """What each evaluation of the run showed, by its iteration."""
    paths = sorted([*folder.samples.glob("eval_*.png"), *folder.samples.glob("eval_*.md")])
    named = {path: re.fullmatch(r"eval_(\d+)", path.stem) for path in paths}
    return {int(found[1]): path for path, found in named.items() if found}


def _values(record: Mapping[str, float | None]) -> dict[str, float]:
    return {
        name: math.nan if value is None else value
        for name, value in record.items()
        if name not in ("iteration", "time")
    }
