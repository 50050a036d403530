"""One run, one owner: who works in a run folder, in a file of it that only one process can have."""

import fcntl
import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlfactory.run.atomic import flush, write_text
from rlfactory.run.folder import RunFolderError

OWNER_FILE, TAKE_OVER = "OWNER", "--take-over"
Claim = Mapping[str, Any]


@contextmanager
def owned(folder: Path, take_over: bool = False) -> Iterator[str]:
    """Within this a run folder is ours; RunFolderError where it is somebody else's.

    Gives what there is to say of who had it and did not give it back. `take_over` takes it from a
    process of which it can't be known whether it lives.
    """
    ours, path = claim(os.getpid()), folder / OWNER_FILE
    with _one_at_a_time(folder):
        if said := _left_by(folder, take_over):
            write_text(path, json.dumps(ours) + "\n")
        else:
            _begin(path, ours)
    try:
        yield said
    finally:
        with suppress(OSError):
            if _read(path) == ours:
                path.unlink()


def require_free(folder: Path, take_over: bool = False) -> None:
    """RunFolderError where somebody else has a folder; touches nothing."""
    _left_by(folder, take_over)


def claim(pid: int) -> dict[str, Any]:
    """What tells a process from all others, also from a later one of the same number."""
    return {
        "pid": pid,
        "host": socket.gethostname(),
        "boot": _text(Path("/proc/sys/kernel/random/boot_id")),
        "space": _space(),
        "started": started(pid),
    }


def started(pid: int) -> str | None:
    """When a process began, in the system's own terms; None if it is no more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _asked(pid)
    except (OSError, ValueError):
        return None
    state, *rest = stat.rpartition(")")[2].split()  # a name may hold spaces and brackets
    return None if state in "ZX" else rest[18]


def _left_by(folder: Path, take_over: bool) -> str:
    """What to say of a former owner that is no more; "" where there is none."""
    theirs = _read(folder / OWNER_FILE)
    if theirs is None:
        return ""
    who = f"process {theirs.get('pid', '?')} on {theirs.get('host', 'an unknown machine')}"
    lives = _lives(theirs)
    if lives:
        raise RunFolderError(
            f"{folder} is in use by {who}; wait for it, or stop it with kill {theirs['pid']}"
        )
    if lives is None and not take_over:
        raise RunFolderError(
            f"{folder} is in use by {who}, and from here it can't be seen whether that still runs;"
            f" if it does not, add {TAKE_OVER}"
        )
    return f"taken over from {who}, {'as was asked' if lives is None else 'which is no more'}"


def _lives(theirs: Claim) -> bool | None:
    """Whether another process is there; None where that can't be known."""
    ours = claim(os.getpid())
    if theirs.keys() != ours.keys() or theirs["host"] != ours["host"]:
        return None
    if theirs["boot"] != ours["boot"]:
        return False
    if theirs["space"] != ours["space"]:
        return None
    begun = started(theirs["pid"])
    return begun is not None and begun == theirs["started"]


def _begin(path: Path, ours: Claim) -> None:
    """Make the file, unless somebody on another machine was quicker."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(ours) + "\n")
    except FileExistsError:
        raise RunFolderError(f"{path.parent} was taken by another process just now") from None
    flush(path)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Of the processes of this machine only one at once looks at who owns a folder and takes it.

    The lock is on the log, which stays whoever owns the run. A file system without locks has the
    exclusive making of the file alone, which is enough but where two take over at one instant.
    """
    with (folder / "log.txt").open("a") as file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> dict[str, Any] | None:
    """A claim, nothing in it where it is damaged; None where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _space() -> str | None:
    """The space in which process numbers are counted; containers have their own."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _asked(pid: int) -> str | None:
    """When a process began, where there is no /proc."""
    asked = ["ps", "-o", "lstart=", "-p", str(pid)]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
