"""Read what a report needs of a run folder, as plain values."""

import ast
import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlfactory.config.frozen import read_frozen
from rlfactory.config.problems import override_key
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.metrics import Record, read
from rlfactory.run.scores import Scores
from rlfactory.utils.data_files import FileError, mismatch, read_text
from rlfactory.utils.types import Media

Array = NDArray[np.float64]
Series = tuple[Array, Array]
"""The iterations `[N]` at which a metric was measured, and its finite values `[N]`."""

ABSENT = "not begun"
DAMAGED = "damaged"
_PYTHON = "rlfactory.train"
LARGEST_COMMAND = 2**20
"""Bytes."""


@dataclass(frozen=True)
class RunRecord:
    """A run as a report sees it.

    Attributes:
        status: the word in STATUS, or `ABSENT` or `DAMAGED`; of these two the rest is empty.
        series: all metrics by name.
        iterations: how many it has finished.
        typed: the keys that were typed for it; None where that is unknown.
        fault: why it is damaged.
        earlier: the runs of its earlier stages, the first one first.
        better: whether higher or lower is better, by score name, as far as the rewards say it.
    """

    path: Path
    status: str
    config: Mapping[str, Any]
    series: Mapping[str, Series] = field(default_factory=dict)
    iterations: int = 0
    better: Mapping[str, str] = field(default_factory=dict)
    typed: frozenset[str] | None = None
    fault: str = ""
    earlier: tuple["RunRecord", ...] = ()

    @property
    def stages(self) -> list["RunRecord"]:
        """The runs of all of its stages, itself last."""
        return [*self.earlier, self]

    @property
    def is_read(self) -> bool:
        """Whether there was a run that could be read."""
        return self.status not in (ABSENT, DAMAGED)

    @property
    def seed(self) -> int:
        """The seed in its configuration."""
        return int(self.config.get("seed", 0))

    def last(self, name: str) -> float | None:
        """A metric's last value; None where it was not measured."""
        return float(self.series[name][1][-1]) if name in self.series else None

    @property
    def media(self) -> Media | None:
        """The kind of its samples, by the files in its folder; None if there are none."""
        samples = RunFolder(self.path).samples
        kinds = {path.suffix for path in samples.glob("eval_*")}
        suffixes: Mapping[str, Media] = {".gif": "videos", ".png": "images", ".md": "texts"}
        return next((name for suffix, name in suffixes.items() if suffix in kinds), None)


def read_run(path: Path) -> RunRecord:
    """Read a run with its metrics.

    A last line without its end is ignored: a run that trains has one at times.
    """
    folder = RunFolder(path)
    if not path.is_dir():
        return RunRecord(path, ABSENT, {})
    try:
        status = folder.read_status() if folder.status.exists() else "no STATUS"
        config = _config(folder.config)
        records = read(folder.metrics) if folder.metrics.exists() else []
        if status == "done" and not records:
            raise RunFolderError("it is done, but has no metrics.jsonl")
    except (FileError, RunFolderError) as error:
        return RunRecord(path, DAMAGED, {}, fault=str(error))
    reached = max((int(record["iteration"] or 0) for record in records), default=0)
    better, typed = _directions(folder), typed_keys(folder)
    return RunRecord(path, status, config, series_of(records), reached, better, typed)


def prompt_scores(run: RunRecord, score: str, iteration: int) -> tuple[list[str], Array] | None:
    """The prompts of an evaluation and the score `[N]` of each one; NaN where it has none.

    None where the file of scores is missing or damaged, or does not have the score; on a further
    prompt set that is `SET/SCORE`.
    """
    prompt_set, _, name = score.rpartition("/")
    folder = RunFolder(run.path).prompt_set(prompt_set)
    try:
        scores = Scores.load(folder.evaluation(iteration))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    if name not in scores.values:
        return None
    values = scores.by_prompt(name)
    return scores.prompts[: len(values)], values


def _directions(folder: RunFolder) -> dict[str, str]:
    """The better directions of the scores of the first evaluation, and of those of prompt sets by
    `SET/SCORE`; empty where that does not say it.
    """
    known: dict[str, str] = {}
    for prefix, of_set in folder.evaluated_sets().items():
        with suppress(FileError, FileNotFoundError):
            better = Scores.load(of_set.evaluation(0)).better
            known |= {f"{prefix}/{name}".lstrip("/"): word for name, word in better.items()}
    return known


def _config(path: Path) -> Mapping[str, Any]:
    try:
        config = read_frozen(path)
    except FileNotFoundError:
        raise RunFolderError("config.yaml is missing") from None
    kinds = {"iterations": int, "seed": int}
    wrong = (mismatch(config[key], kind, key) for key, kind in kinds.items() if key in config)
    if problem := next(filter(None, wrong), ""):
        raise RunFolderError(f"config.yaml: {problem}")
    return config


def series_of(records: Sequence[Record]) -> dict[str, Series]:
    """The finite values of all metrics.

    Of an iteration that a resumed run repeated the last value counts.
    """
    columns: dict[str, dict[float, float]] = {}
    for record in records:
        for name, value in record.items():
            if value is not None and math.isfinite(value):
                columns.setdefault(name, {})[record["iteration"] or 0] = value
    points = {name: np.array(sorted(of.items()), dtype=np.float64) for name, of in columns.items()}
    return {name: (pairs[:, 0], pairs[:, 1]) for name, pairs in points.items()}


def typed_keys(folder: RunFolder) -> frozenset[str] | None:
    """The keys and groups in a run's `command.txt`, which is `rlfactory KEY=VALUE ...` or
    `rlfactory.train('KEY=VALUE', ...)`.

    None where that does not say all: a folder of an earlier version, or live objects from Python.
    """
    if folder.objects.exists():
        return None
    try:
        command = read_text(folder.command, largest=LARGEST_COMMAND).strip()
        if command.startswith(_PYTHON):
            inner = command.removeprefix(f"{_PYTHON}(").removesuffix(")")
            words = [str(word) for word in ast.literal_eval(f"[{inner}]")] if inner else []
        else:
            words = shlex.split(command)[1:]
    except (FileNotFoundError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return frozenset(override_key(word.lstrip("-")) for word in words if "=" in word)
