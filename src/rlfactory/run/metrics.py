"""metrics.jsonl: a run's metrics, one JSON object per line; every curve and table reads it."""

import itertools
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlfactory.run.loggers import Logger

Record = dict[str, float | None]


class MetricsLog:
    """Appends one JSON object per call: `iteration`, `time` and the values.

    `time` is in seconds since the run started, without the time between an interruption and the
    resume. Without a path, as on ranks other than 0, nothing is written.
    """

    def __init__(self, path: Path | None, loggers: Sequence[Logger] = ()) -> None:
        self.path = path
        self.loggers = tuple(loggers)
        if path is not None:
            _cut_torn_line(path)
        past = read(path) if path is not None and path.exists() else []
        self.lines = len(past)
        self._start = time.monotonic() - ((past[-1]["time"] or 0.0) if past else 0.0)

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Write an iteration's values, non-finite ones as null, and pass them on to the loggers."""
        record: Record = {"iteration": iteration, "time": round(self.elapsed, 3)}
        for name, value in values.items():
            record[name] = float(value) if math.isfinite(value) else None
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
    """All complete lines of a metrics file; ValueError if one is not JSON."""
    lines = path.read_text(encoding="utf-8").split("\n")
    records: list[Record] = []
    # a last line without a newline was torn by a kill
    for number, line in enumerate(lines[:-1], start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not a JSON object ({error})") from error
    return records


def keep_lines(path: Path, count: int) -> int:
    """Truncate a file after its first `count` lines; returns how many of them there are."""
    if not path.exists():
        return 0
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


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)
