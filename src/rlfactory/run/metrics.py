"""metrics.jsonl: a run's metrics, one JSON object per line; every curve and table reads it."""

import itertools
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.run.loggers import Logger
from rlfactory.utils.data_files import FileError, mismatch, parse_json, read_text, require_file

Record = dict[str, float | None]
NO_ITERATION = "iteration is missing"
REMEDY = "restore it from a copy, or remove that line"
LARGEST = 4 * 2**30
"""Bytes of a metrics file that are read: of millions of iterations."""


class MetricsLog:
    """Appends one JSON object per call: `iteration`, `time` and the values.

    `time` is in seconds since the run started, without the time between an interruption and the
    resume. Without a path, as on ranks other than 0, nothing is written.
    """

    def __init__(self, path: Path | None, loggers: Sequence[Logger] = ()) -> None:
        self.path = path
        self.loggers = tuple(loggers)
        if path is not None:
            keep_lines(path, sys.maxsize)  # without a last one that was torn by a kill
        past = read(path) if path is not None and path.exists() else []
        self.lines = len(past)
        self._start = time.monotonic() - ((past[-1].get("time") or 0.0) if past else 0.0)

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Write an iteration's values, non-finite ones as null, and pass them on to the loggers."""
        record: Record = {"iteration": iteration, "time": round(self.elapsed, 3)}
        record |= {name: float(v) if math.isfinite(v) else None for name, v in values.items()}
        # opened for each line, so that a killed run keeps every line but the one being written
        if self.path is not None:
            _append(self.path, (json.dumps(record, allow_nan=False) + "\n").encode())
        self.lines += 1
        for logger in self.loggers:
            logger.log(iteration, values)

    @property
    def elapsed(self) -> float:
        """Seconds since the run started."""
        return time.monotonic() - self._start


def read(path: Path) -> list[Record]:
    """All complete lines of a metrics file.

    Raises:
        FileError: it can't be read, or a line is no record: an object of numbers and nulls with an
            `iteration`, a whole number.
    """
    lines = read_text(path, remedy=REMEDY, largest=LARGEST).split("\n")
    # a last line without a newline was torn by a kill
    return [parse_record(line, number, path) for number, line in enumerate(lines[:-1], start=1)]


def parse_record(line: str | bytes, number: int, path: Path) -> Record:
    """Line `number` of a metrics file; FileError if it is no record."""
    if isinstance(line, bytes):
        line = line.decode("utf-8", errors="replace")
    record = parse_json(line, path, line=number, remedy=REMEDY)
    if problem := _problem(record):
        raise FileError(path, f"line {number}: {problem}", REMEDY)
    return record


def _problem(record: Any) -> str:
    if not isinstance(record, dict):
        return mismatch(record, dict)
    if type(iteration := record.get("iteration")) is not int:
        return mismatch(iteration, int, "iteration") if iteration is not None else NO_ITERATION
    kinds = {*map(type, record.values())}
    if kinds <= {float, int, type(None)}:
        return ""
    wrong = ((k, v) for k, v in record.items() if type(v) not in (float, int, type(None)))
    return next(f"{ascii(key)[1:-1]} is {ascii(value)[:40]}, not a number" for key, value in wrong)


def keep_lines(path: Path, count: int) -> int:
    """Truncate a file after its first `count` lines; returns how many of them there are.

    FileError where it is a link, or no file.
    """
    if not os.path.lexists(path):
        return 0
    require_file(path, remedy="restore it from a copy", may_be_link=False)
    with path.open("rb+") as file:
        kept = [len(line) for line in itertools.islice(file, count) if line.endswith(b"\n")]
        file.truncate(sum(kept))
    return len(kept)


def _append(path: Path, line: bytes) -> None:
    """Append a line, or nothing of it if the disk is full."""
    with path.open("ab", buffering=0) as file:
        size, rest = file.tell(), line
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(size)
            raise
