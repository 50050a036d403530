"""A run folder as plain values: what a report needs of it, read fast."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray

from rlfactory.run.folder import RunFolder

# the parser in C is ten times faster; a report reads hundreds of files
SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Array = NDArray[np.float64]
Series = tuple[Array, Array]
"""The iterations `[N]` at which a metric was measured, and its finite values `[N]`."""

ABSENT = "not begun"
DAMAGED = "damaged"
ALWAYS = ("nfe/total", "kl/reference")
_BEGIN = b'{"iteration": '


class Damaged(ValueError):
    """A folder that a report can't use; the message says why."""


@dataclass(frozen=True)
class Run:
    """What a report knows of a run. `series` has all of its evaluations and the metrics that were
    asked for; `iterations` is how many it has had.
    """

    path: Path
    status: str
    config: Mapping[str, Any]
    series: Mapping[str, Series] = field(default_factory=dict)
    iterations: int = 0

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.config.get("seed", 0))

    @property
    def media(self) -> Literal["images", "texts"] | None:
        """What it draws, by what it left; None if it left nothing."""
        samples = RunFolder(self.path).samples
        kinds = {path.suffix for path in samples.glob("eval_*")}
        return "images" if ".png" in kinds else "texts" if ".md" in kinds else None


def read_run(path: Path, wanted: Iterable[str] = ()) -> Run:
    """A run with its evaluations, its rewards and the `wanted` metrics; Damaged if it has faults.

    A last line torn by a kill is no fault: a run that trains has one at times.
    """
    folder = RunFolder(path)
    status = _text(folder.status).strip() or "no STATUS"
    config = _config(folder.config)
    lines = _lines(folder.metrics) if folder.metrics.is_file() else []
    if status == "done" and not lines:
        raise Damaged("it is done, but has no metrics.jsonl")
    at = [_iteration(number, line) for number, line in enumerate(lines, start=1)]
    series = {**_evaluations(lines), **_trained(lines, at, [*wanted, *ALWAYS])}
    return Run(path, status, config, series, max(at, default=0))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise Damaged(f"{path.name} can't be read ({error})") from error


def _config(path: Path) -> Mapping[str, Any]:
    try:
        found = yaml.load(_text(path), SafeLoader)
    except yaml.YAMLError as error:
        raise Damaged(f"config.yaml is no YAML ({' '.join(str(error).split())})") from error
    if not isinstance(found, dict) or "iterations" not in found:
        raise Damaged("config.yaml is missing or half-written")
    return found


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise Damaged(f"metrics.jsonl can't be read ({error})") from error


def _iteration(number: int, line: bytes) -> int:
    """A line's iteration, without parsing the whole of it."""
    if line.startswith(_BEGIN) and line.endswith(b"}"):
        try:
            return int(line[len(_BEGIN) : line.index(b",")])
        except ValueError:
            pass
    return int(_parsed(number, line)["iteration"])


def _parsed(number: int, line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
        int(found["iteration"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"metrics.jsonl, line {number} is no record ({type(error).__name__}: {error})"
        raise Damaged(message) from error
    return found  # type: ignore[no-any-return]


def _evaluations(lines: Sequence[bytes]) -> dict[str, Series]:
    """Every metric of the evaluations, which are few: these lines are parsed whole."""
    found: dict[str, dict[float, float]] = {}
    for number, line in enumerate(lines, start=1):
        if b'"eval/' not in line:
            continue
        record = _parsed(number, line)
        for name, value in record.items():
            if name.startswith("eval/") and isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(name, {})[int(record["iteration"])] = float(value)
    return {name: _series(values) for name, values in found.items()}


def _trained(lines: Sequence[bytes], at: Sequence[int], wanted: Iterable[str]) -> dict[str, Series]:
    """The wanted metrics and the rewards' means, found by their names alone."""
    names = dict.fromkeys([*wanted, *_rewards(lines)])
    found = {name: _column(lines, at, name) for name in names if not name.startswith("eval/")}
    return {name: series for name, series in found.items() if len(series[0])}


def _rewards(lines: Sequence[bytes]) -> list[str]:
    first = next((line for line in lines if b'"reward/' in line), None)
    names = _parsed(lines.index(first) + 1, first) if first is not None else {}
    return [name for name in names if name.startswith("reward/") and name.endswith("/mean")]


def _column(lines: Sequence[bytes], at: Sequence[int], name: str) -> Series:
    """A metric's values: cut out of the lines, since parsing them whole takes ten times as long."""
    key = json.dumps(name).encode() + b":"
    x, y = [], []  # type: list[int], list[float]
    for iteration, line in zip(at, lines, strict=True):
        begin = line.find(key)
        if begin >= 0:
            begin += len(key)
            # where no comma follows, -1 leaves out the brace
            y.append(_number(name, iteration, line[begin : line.find(b",", begin)]))
            x.append(iteration)
    values = np.array(y, dtype=np.float64)
    kept = np.isfinite(values)
    return _rising(np.array(x, dtype=np.float64)[kept], values[kept])


def _number(name: str, iteration: int, word: bytes) -> float:
    try:
        return float(word)
    except ValueError as error:
        if word.strip() == b"null":
            return math.nan
        message = f"metrics.jsonl: {name} of iteration {iteration} is {word[:20]!r}, no number"
        raise Damaged(message) from error


def _rising(x: Array, y: Array) -> Series:
    """Each iteration once, its last value."""
    if np.all(np.diff(x) > 0):
        return x, y
    return _series(dict(zip(x.tolist(), y.tolist(), strict=True)))


def _series(values: Mapping[float, float]) -> Series:
    ordered = sorted(values.items())
    return (
        np.array([x for x, _ in ordered], dtype=np.float64),
        np.array([y for _, y in ordered], dtype=np.float64),
    )
