"""Logs what a run folder holds: the samples of one evaluation, or all of a run."""

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


def log_samples(logger: Logger, iteration: int, path: Path, prompt_set: str = "") -> None:
    """Log an evaluation's samples: `path` if it is an image, and the table beside it if it exists.

    `path` is the file that `Gallery.show` returned; of a prompt set the names have its name inside.
    """
    table_file = path.with_suffix(".json")
    table = SampleTable.load(table_file) if table_file.is_file() else None
    grid, cells = (
        name.replace("/", f"/{prompt_set}/") if prompt_set else name for name in (GRID, TABLE)
    )
    if path.suffix == ".png":
        logger.images(iteration, grid, path, "" if table is None else table.title)
    if table is not None:
        logger.table(iteration, cells, table)


def replay_run(logger: Logger, folder: RunFolder, config: Mapping[str, Any]) -> int:
    """Log all metrics and samples of a run from the beginning; returns the lines of metrics."""
    records, samples = read(folder.metrics), _evaluations(folder)
    logger.restart(folder.path)
    logger.start(folder.path, config)
    for record in records:
        iteration = int(record["iteration"] or 0)
        # samples of an evaluation are logged before the metrics of the next iteration
        for done in [done for done in samples if done <= iteration]:
            log_samples(logger, done, samples.pop(done))
        logger.log(iteration, _values(record))
    logger.finish()
    return len(records)


def _evaluations(folder: RunFolder) -> dict[int, Path]:
    """The file of samples of each evaluation, by its iteration."""
    paths = sorted([*folder.samples.glob("eval_*.png"), *folder.samples.glob("eval_*.md")])
    # a pipe, for one, would be waited for
    files = [path for path in paths if path.is_file()]
    matches = {path: re.fullmatch(r"eval_(\d+)", path.stem) for path in files}
    return {int(match[1]): path for path, match in matches.items() if match}


def _values(record: Mapping[str, float | None]) -> dict[str, float]:
    return {
        name: math.nan if value is None else value
        for name, value in record.items()
        if name not in ("iteration", "time")
    }
