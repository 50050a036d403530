"""Read what a report needs of a run folder, as plain values.

Reports read hundreds of folders: metrics.jsonl is searched for the wanted names, not parsed.
"""

import ast
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlfactory.config.frozen_file import read_frozen
from rlfactory.config.problems import override_key
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.metrics import LARGEST, Record, parse_record
from rlfactory.run.scores import Scores
from rlfactory.utils.data_files import FileError, mismatch, read_bytes, read_text
from rlfactory.utils.types import Media

Array = NDArray[np.float64]
Series = tuple[Array, Array]
"""The iterations `[N]` at which a metric was measured, and its finite values `[N]`."""

ABSENT = "not begun"
DAMAGED = "damaged"
ALWAYS = ("nfe/total", "kl/reference")
_BEGIN = b'{"iteration": '
_PYTHON = "rlfactory.train"
LARGEST_COMMAND = 2**20
"""Bytes."""


class Damaged(ValueError):
    """A run folder that a report can't use; the message says why."""


@dataclass(frozen=True)
class RunRecord:
    """A run as a report sees it.

    Attributes:
        status: the word in STATUS.
        series: all metrics of evaluations, mean rewards and the wanted metrics, by name.
        iterations: how many it has finished.
        typed: the keys that were typed for it; None where that is unknown.
        better: whether higher or lower is better, by score name, as far as the rewards say it.
    """

    path: Path
    status: str
    config: Mapping[str, Any]
    series: Mapping[str, Series] = field(default_factory=dict)
    iterations: int = 0
    better: Mapping[str, str] = field(default_factory=dict)
    typed: frozenset[str] | None = None

    @property
    def seed(self) -> int:
        """The seed in its configuration."""
        return int(self.config.get("seed", 0))

    @property
    def media(self) -> Media | None:
        """The kind of its samples, by the files in its folder; None if there are none."""
        samples = RunFolder(self.path).samples
        kinds = {path.suffix for path in samples.glob("eval_*")}
        suffixes: Mapping[str, Media] = {".gif": "videos", ".png": "images", ".md": "texts"}
        return next((name for suffix, name in suffixes.items() if suffix in kinds), None)


def read_run(path: Path, wanted: Iterable[str] = ()) -> RunRecord:
    """Read a run with its evaluations, its rewards and the `wanted` metrics.

    A last line without its end is ignored: a run that trains has one at times.

    Raises:
        Damaged: a file is missing, unreadable or half-written.
    """
    folder = RunFolder(path)
    status = _status(folder)
    config = _config(folder.config)
    lines = _lines(folder.metrics) if folder.metrics.exists() else []
    if status == "done" and not lines:
        raise Damaged("it is done, but has no metrics.jsonl")
    at = [_iteration(number, line) for number, line in enumerate(lines, start=1)]
    series = {**_evaluations(lines), **_trained(lines, at, [*wanted, *ALWAYS])}
    reached = max(at, default=0)
    better, typed = _directions(folder), typed_keys(folder)
    return RunRecord(path, status, config, series, reached, better, typed)


def prompt_scores(run: RunRecord, score: str, iteration: int) -> tuple[list[str], Array] | None:
    """The prompts of an evaluation and the score `[N]` of each one; NaN where it has none.

    None where the file of scores is missing or damaged, or does not have the score.

    Args:
        score: its name; of a further prompt set `SET/SCORE`.
    """
    prompt_set, _, name = score.rpartition("/")
    folder = RunFolder(run.path)
    path = (folder.prompt_set(prompt_set) if prompt_set else folder).evaluation(iteration)
    try:
        scores = Scores.load(path)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    if name not in scores.values:
        return None
    values = scores.by_prompt(name)
    return scores.prompts[: len(values)], values


def _status(folder: RunFolder) -> str:
    """The word in STATUS; Damaged where it is no such word."""
    if not folder.status.exists():
        return "no STATUS"
    try:
        return folder.read_status()
    except RunFolderError as error:
        raise Damaged(str(error)) from error


def _directions(folder: RunFolder) -> dict[str, str]:
    """What is better of the scores of the first evaluation, and of those of prompt sets by
    `SET/SCORE`; empty where that does not say it.
    """
    known = _declared(folder)
    for name, of_set in folder.evaluated_sets().items():
        known |= {f"{name}/{score}": better for score, better in _declared(of_set).items()}
    return known


def _declared(folder: RunFolder) -> dict[str, str]:
    try:
        return Scores.load(folder.evaluation(0)).better
    except (FileError, FileNotFoundError):
        return {}


def _config(path: Path) -> Mapping[str, Any]:
    try:
        config = read_frozen(path)
    except FileNotFoundError:
        raise Damaged("config.yaml is missing") from None
    except FileError as error:
        raise Damaged(str(error)) from error
    kinds = {"iterations": int, "seed": int}
    wrong = (mismatch(config[key], kind, key) for key, kind in kinds.items() if key in config)
    if problem := next(filter(None, wrong), ""):
        raise Damaged(f"config.yaml: {problem}")
    return config


def _lines(path: Path) -> list[bytes]:
    try:
        return read_bytes(path, largest=LARGEST).split(b"\n")[:-1]
    except FileError as error:
        raise Damaged(str(error)) from error


def _iteration(number: int, line: bytes) -> int:
    """A line's iteration, where possible without parsing all of the line."""
    if line.startswith(_BEGIN) and line.endswith(b"}"):
        try:
            return int(line[len(_BEGIN) : line.index(b",")])
        except ValueError:
            pass
    return int(_parsed(number, line)["iteration"] or 0)


def _parsed(number: int, line: bytes) -> Record:
    try:
        return parse_record(line, number, Path("metrics.jsonl"))
    except FileError as error:
        raise Damaged(str(error)) from error


def _evaluations(lines: Sequence[bytes]) -> dict[str, Series]:
    """Every metric of the evaluations. They are few, so their lines are parsed completely."""
    values: dict[str, dict[float, float]] = {}
    for number, line in enumerate(lines, start=1):
        if b'"eval/' not in line:
            continue
        record = _parsed(number, line)
        for name, value in record.items():
            if name.startswith("eval/") and isinstance(value, int | float) and math.isfinite(value):
                values.setdefault(name, {})[int(record["iteration"] or 0)] = float(value)
    return {name: _series(by_iteration) for name, by_iteration in values.items()}


def _trained(lines: Sequence[bytes], at: Sequence[int], wanted: Iterable[str]) -> dict[str, Series]:
    """The wanted metrics and the mean rewards of training."""
    names = dict.fromkeys([*wanted, *_rewards(lines)])
    columns = {name: _column(lines, at, name) for name in names if not name.startswith("eval/")}
    return {name: series for name, series in columns.items() if len(series[0])}


def _rewards(lines: Sequence[bytes]) -> list[str]:
    first = next((line for line in lines if b'"reward/' in line), None)
    names = _parsed(lines.index(first) + 1, first) if first is not None else {}
    return [name for name in names if name.startswith("reward/") and name.endswith("/mean")]


def _column(lines: Sequence[bytes], at: Sequence[int], name: str) -> Series:
    """A metric's values, cut out of the lines: parsing these completely takes ten times as long."""
    key = json.dumps(name).encode() + b":"
    x, y = [], []  # type: list[int], list[float]
    for iteration, line in zip(at, lines, strict=True):
        begin = line.find(key)
        if begin >= 0:
            begin += len(key)
            # at the end of a line there is no comma: find gives -1, which leaves out the brace
            y.append(_number(name, iteration, line[begin : line.find(b",", begin)]))
            x.append(iteration)
    values = np.array(y, dtype=np.float64)
    kept = np.isfinite(values)
    return _increasing(np.array(x, dtype=np.float64)[kept], values[kept])


def _number(name: str, iteration: int, word: bytes) -> float:
    try:
        return float(word)
    except ValueError as error:
        if word.strip() == b"null":
            return math.nan
        message = f"metrics.jsonl: {name} of iteration {iteration} is {word[:20]!r}, not a number"
        raise Damaged(message) from error


def _increasing(x: Array, y: Array) -> Series:
    """Sort by iteration, each with its last value: a resumed run may repeat some."""
    if np.all(np.diff(x) > 0):
        return x, y
    return _series(dict(zip(x.tolist(), y.tolist(), strict=True)))


def _series(values: Mapping[float, float]) -> Series:
    ordered = sorted(values.items())
    return (
        np.array([x for x, _ in ordered], dtype=np.float64),
        np.array([y for _, y in ordered], dtype=np.float64),
    )


def typed_keys(folder: RunFolder) -> frozenset[str] | None:
    """The keys and groups in a run's `command.txt`.

    None where that does not say all: a folder of an earlier version, or live objects from Python.
    """
    if folder.objects.exists():
        return None
    try:
        words = _words(read_text(folder.command, largest=LARGEST_COMMAND).strip())
    except (FileNotFoundError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return frozenset(override_key(word.lstrip("-")) for word in words if "=" in word)


def _words(command: str) -> list[str]:
    """The overrides of `rlfactory KEY=VALUE ...` or `rlfactory.train('KEY=VALUE', ...)`."""
    if not command.startswith(_PYTHON):
        return shlex.split(command)[1:]
    inner = command.removeprefix(f"{_PYTHON}(").removesuffix(")")
    return [str(word) for word in ast.literal_eval(f"[{inner}]")] if inner else []
