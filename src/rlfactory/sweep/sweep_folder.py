"""A sweep's folder: `sweep.json`, a run folder for each job, and the status read from it."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from filelock import lock_descriptor

from rlfactory.config.problems import PlanError, Problem
from rlfactory.run.metrics import parse_record
from rlfactory.sweep.table import TABLE_FILE, Job, Table
from rlfactory.utils.data_files import FileError, read_shown, read_text, require_file

State = Literal["done", "resume", "retry", "new"]
TAIL = 65536


@dataclass(frozen=True)
class JobStatus:
    """A job's state, its iterations and seconds so far, and its last mean reward (NaN if none).

    The state is what the same command would do: nothing (`done`), `resume`, `retry` after a
    failure, or begin (`new`).
    """

    state: State
    iteration: int = 0
    seconds: float = 0.0
    score: float = math.nan


def state_of(run: Path) -> State:
    """The state of a run's folder, as in `JobStatus`."""
    try:
        word = read_text(run / "STATUS").strip()
    except (FileError, FileNotFoundError):
        return "new"
    if word in ("done", "failed"):
        return "done" if word == "done" else "retry"
    return "resume"


def read_status(run: Path, score: str = "") -> JobStatus:
    """Read a run's status; `score` names the reward to prefer, else it is the first one logged."""
    last = last_line(run / "metrics.jsonl") or {}
    names = [f"reward/{score}/mean", *(key for key in last if key.startswith("reward/"))]
    values = (last.get(name) for name in names if name.endswith("/mean"))
    mean = next((value for value in values if value is not None), math.nan)
    iteration, seconds = int(last.get("iteration") or 0), last.get("time") or 0.0
    return JobStatus(state_of(run), iteration, seconds, mean)


def last_line(path: Path) -> dict[str, float | None] | None:
    """The last complete line of metrics.jsonl with a training reward, if there is one."""
    try:
        require_file(path)
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            lines = file.read().split(b"\n")[:-1]
    except (OSError, FileError):
        return None
    for line in reversed(lines):
        with suppress(FileError):
            record = parse_record(line, 0, path)
            if any(key.startswith("reward/") for key in record):
                return record
    return None


def failure(run: Path, output: Path) -> list[str]:
    """The reason of a failure: the job's error message and the end of its traceback."""
    errors = [line for line in _lines(output) if line.startswith("error:")]
    traced = _lines(run / "log.txt")
    if "Traceback (most recent call last):" not in traced:
        traced = _lines(output)
    begin = [i for i, x in enumerate(traced) if x.startswith("Traceback (most recent call last)")]
    tail = traced[begin[-1] :][-6:] if begin else []
    return [*errors[-1:], *tail] or _lines(output)[-6:]


def _lines(path: Path) -> list[str]:
    text = read_shown(path, 2**30)[-TAIL:]
    return [line for line in text.splitlines() if line.strip()]


def default_folder(name: str, size: str) -> Path:
    """The folder of a sweep unless `sweep_dir=` names another."""
    return Path("outputs") / "sweeps" / f"{Path(name).stem}-{size}"


def merge_table(folder: Path, table: Table) -> Table:
    """Add the jobs that the folder has; PlanError if it holds another sweep, or other runs."""
    former = _former(folder)
    if former is None:
        return table
    if (former.name, former.size) != (table.name, table.size):
        message = f"{folder} holds the sweep {former.name}, size {former.size}"
        raise PlanError([Problem("sweep_dir", message, f"sweep_dir={folder}_2")])
    old, new = ({job.name: job for job in t.jobs} for t in (former, table))
    begun = [name for name in new if name in old and (folder / old[name].folder).exists()]
    changed = [name for name in begun if new[name].overrides != old[name].overrides]
    if changed:
        raise PlanError([_changed_job(folder, old[name], new[name]) for name in changed])
    order = [row.name for row in table.rows]
    jobs = sorted((old | new).values(), key=lambda j: order.index(j.row) if j.row in order else -1)
    return replace(table, jobs=jobs)


def _former(folder: Path) -> Table | None:
    """The table in a folder; None where the folder is empty or missing."""
    try:
        return Table.load(folder)
    except FileNotFoundError:
        pass
    except ValueError as error:
        fix = f"sweep_dir={folder}_2"
        raise PlanError([Problem("sweep_dir", str(error), fix)]) from error
    except OSError as error:
        raise PlanError([Problem("sweep_dir", f"{folder} can't be read: {error}")]) from error
    # names with a leading dot are the lock and files left by a kill
    if folder.is_dir() and (names := sorted(p.name for p in folder.glob("[!.]*"))):
        message = f"{folder} is not a sweep: it holds {names[0]} and no {TABLE_FILE}"
        raise PlanError([Problem("sweep_dir", message, f"sweep_dir={folder}_2")])
    return None


def _changed_job(folder: Path, old: Job, new: Job) -> Problem:
    removed = " ".join(word for word in old.overrides if word not in new.overrides)
    added = " ".join(word for word in new.overrides if word not in old.overrides)
    change = f"had {removed}" if removed else "" if added else "had another order"
    if added:
        change += f"; now it has {added}" if removed else f"now has {added}"
    return Problem("sweep_dir", f"in {folder}, {old.name} {change}", f"sweep_dir={folder}_2")


LOCK, LOGS = ".lock", "logs"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a sweep's folder, which ends with the process; PlanError if it is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = take(folder / LOCK)
    if handle is None:
        message = f"another command runs the sweep in {folder} already"
        raise PlanError([Problem("sweep_dir", message, f"sweep_dir={folder}_2")])
    try:
        yield
    finally:
        os.close(handle)


def take(path: Path, *, wait: bool = False) -> int | None:
    """A file descriptor that holds the lock on `path`, or None where another one holds it.

    The lock belongs to the open file: a child that inherits the descriptor holds it too, however
    its parent ends, and the kernel releases it with the last of them. `filelock.FileLock` keeps its
    descriptor to itself, so this takes the same lock on one of ours.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if lock_descriptor(handle, blocking=wait):
        return handle
    os.close(handle)
    return None


def job_output(folder: Path, job: Job) -> Path:
    """The file with what a job's process prints."""
    return folder / LOGS / f"{job.folder}.txt"
