"""A sweep's folder: `sweep.json`, and a run folder for each job."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rlfactory.problems import PlanError, Problem
from rlfactory.sweep.table import TABLE_FILE, Job, Table


def default_folder(name: str, size: str) -> Path:
    """Where a sweep is, unless one says otherwise."""
    return Path("outputs") / "sweeps" / f"{Path(name).stem}-{size}"


def joined(folder: Path, table: Table) -> Table:
    """A table with the jobs that its folder has from before; PlanError if that is another sweep."""
    former = _former(folder)
    if former is None:
        return table
    if (former.name, former.size) != (table.name, table.size):
        message = f"{folder} holds the sweep {former.name}, size {former.size}"
        raise PlanError([Problem("sweep_dir", message, f"sweep_dir={folder}_2")])
    old, new = ({job.name: job for job in t.jobs} for t in (former, table))
    other = [name for name in new if name in old and new[name].overrides != old[name].overrides]
    if other:
        raise PlanError([_differing(folder, old[name], new[name]) for name in other])
    order = [row.name for row in table.rows]
    jobs = sorted((old | new).values(), key=lambda j: order.index(j.row) if j.row in order else -1)
    return replace(table, jobs=jobs)


def _former(folder: Path) -> Table | None:
    """The table that a folder has; None where nothing is."""
    try:
        return Table.load(folder)
    except FileNotFoundError:
        pass
    except ValueError as error:
        remedy = f"sweep_dir={folder}_2"
        raise PlanError([Problem("sweep_dir", f"{error}, so it is damaged", remedy)]) from error
    except OSError as error:
        raise PlanError([Problem("sweep_dir", f"{folder} can't be read: {error}")]) from error
    # what begins with a dot is the lock, or was left by a kill
    if folder.is_dir() and (found := sorted(p.name for p in folder.glob("[!.]*"))):
        message = f"{folder} is no sweep: it holds {found[0]} and no {TABLE_FILE}"
        raise PlanError([Problem("sweep_dir", message, f"sweep_dir={folder}_2")])
    return None


def _differing(folder: Path, old: Job, new: Job) -> Problem:
    gone = [word for word in old.overrides if word not in new.overrides]
    come = [word for word in new.overrides if word not in old.overrides]
    parts = [f"{verb} {' '.join(words)}" for verb, words in (("had", gone), ("has", come)) if words]
    said = "; now it ".join(parts) if gone else f"now {parts[0]}" if parts else "had another order"
    return Problem("sweep_dir", f"in {folder}, {old.name} {said}", f"sweep_dir={folder}_2")


LOCK, LOGS = ".lock", "logs"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Be the only one that runs the sweep of a folder. The lock ends with the process."""
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
    """An open file that nobody else has locked, or None.

    The lock is that of the open file: a child that inherits it holds it too, however its parent
    ends, and the kernel releases it with the last of them.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def job_lock(folder: Path, job: Job) -> Path:
    """The file that a job's process has locked."""
    return folder / LOGS / f"{job.folder}.lock"


def job_output(folder: Path, job: Job) -> Path:
    """What a job's process prints."""
    return folder / LOGS / f"{job.folder}.txt"
