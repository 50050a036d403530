"""Which runs and sweeps are meant by the paths that were typed."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlfactory.problems import PlanError, Problem, closest
from rlfactory.run.folder import RunFolder
from rlfactory.sweep.table import TABLE_FILE

_DEPTH = 5


@dataclass(frozen=True)
class Found:
    """Folders, in the order of their names."""

    sweeps: list[Path]
    runs: list[Path]


def discover(paths: Sequence[Path]) -> Found:
    """The runs and sweeps that the paths are or hold; PlanError where one is and holds none."""
    problems, sweeps, runs = [], [], []  # type: list[Problem], list[Path], list[Path]
    for path in paths:
        found = [*_below(path, _DEPTH)] if os.path.isdir(path) else []
        if not found:
            problems.append(_nothing(path))
        for place in found:
            (sweeps if is_sweep(place) else runs).append(place)
    if problems:
        raise PlanError(problems)
    return Found(_once(sweeps), _once(runs))


def is_run(path: Path) -> bool:
    """Whether a run has begun in a folder."""
    folder = RunFolder(path)
    begun = os.path.isfile(folder.config) and os.path.isfile(folder.metrics)
    return begun or os.path.isfile(folder.status)


def is_sweep(path: Path) -> bool:
    """Whether a sweep has begun in a folder."""
    return os.path.isfile(path / TABLE_FILE)


def _below(path: Path, depth: int) -> Iterator[Path]:
    if is_sweep(path) or is_run(path):
        yield path
    elif depth:
        with os.scandir(path) as entries:
            inner = [e.path for e in entries if e.is_dir() and not e.name.startswith(".")]
        for place in sorted(inner):
            yield from _below(Path(place), depth - 1)


def _once(paths: Sequence[Path]) -> list[Path]:
    return [*{path.resolve(): path for path in paths}.values()]


def _nothing(path: Path) -> Problem:
    if os.path.isdir(path):
        what = "is empty" if not any(path.iterdir()) else "is no run and no sweep, and holds none"
        return Problem(str(path), what, "rlfactory, which makes a run")
    if os.path.exists(path):  # false for names that are too long as well
        return Problem(str(path), "is a file, not the folder of a run or a sweep")
    place = path.parent
    names = [p.name for p in place.iterdir()] if os.path.isdir(place) else []
    guess = closest(path.name, names)
    meant = f". Did you mean {place / guess}?" if guess else ""
    return Problem(str(path), f"there is no such folder{meant}")
