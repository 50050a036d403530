"""The lock of a run folder: one process at a time trains in it.

Two things decide. A lock of the kernel on the file `.lock` (library `filelock`) ends with the
process that holds it, however it ends. The file `OWNER` names that process. It alone counts between
hosts that share a disk, where kernel locks may be unsupported, or outlive a machine that crashed.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from rlfactory.run.atomic_write import flush, write_text
from rlfactory.run.folder import RunFolderError
from rlfactory.utils.data_files import FileError, read_json

if TYPE_CHECKING:
    from filelock import FileLock  # imported where it is needed: `check` reads this module only

OWNER_FILE, LOCK_FILE, TAKE_OVER = "OWNER", ".lock", "--take-over"
PROBE_SECONDS = 0.3
"""How long to wait for the kernel lock: another process may hold it for an instant to probe it."""


class _Owner(TypedDict, total=False):
    """The content of OWNER."""

    pid: int
    host: str
    since: str


@contextmanager
def owned(folder: Path, take_over: bool = False) -> Iterator[str]:
    """Own a run folder within this context; with `take_over` even if its owner is on another host,
    where it may still run.

    Yields:
        A line for the log about a former owner that did not release the folder, else "".

    Raises:
        RunFolderError: another process owns the folder, or may own it; the message names it.
    """
    from filelock import FileLock

    owner, path = this_process(), folder / OWNER_FILE
    lock = FileLock(folder / LOCK_FILE)
    try:
        if notice := _former_owner(folder, _acquire(lock), take_over):
            write_text(path, json.dumps(owner) + "\n")
        else:
            try:  # creation is exclusive between hosts
                with path.open("x", encoding="utf-8") as file:
                    file.write(json.dumps(owner) + "\n")
            except FileExistsError:
                message = f"{folder} was taken by another process just now"
                raise RunFolderError(message) from None
            flush(path)
        try:
            yield notice
        finally:
            with suppress(OSError):
                if _read(path) == owner:  # not if it was taken over from another host
                    path.unlink()
    finally:
        lock.release()


def require_free(folder: Path, take_over: bool = False) -> None:
    """RunFolderError where another process owns a folder, as `owned` raises it; makes no file."""
    from filelock import FileLock

    lock = FileLock(folder / LOCK_FILE)
    try:
        _former_owner(folder, _acquire(lock, create=False), take_over)
    finally:
        lock.release()


def this_process() -> dict[str, Any]:
    """The content of `OWNER` for this process."""
    since = datetime.now().isoformat(sep=" ", timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": since}


def _acquire(lock: "FileLock", *, create: bool = True) -> bool | None:
    """Whether nobody else has the kernel lock; acquires it then.

    None where that proves nothing: on a disk without locks, or if the lock's file did not exist, so
    that the process that wrote OWNER has made none.
    """
    from filelock import Timeout

    existed = Path(lock.lock_file).exists()
    try:
        if existed or create:
            lock.acquire(timeout=PROBE_SECONDS, poll_interval=0.02)
    except Timeout:
        return False
    except OSError:
        return None
    return True if existed else None


def _former_owner(folder: Path, acquired: bool | None, take_over: bool) -> str:
    """A line about an owner that did not release the folder, "" if none; raises as `owned`."""
    owner = _read(folder / OWNER_FILE)
    if owner is None:
        if acquired is False:
            raise RunFolderError(
                f"{folder} is in use by a process that started or ended just now; try again"
            )
        return ""
    who = f"process {owner.get('pid', '?')} on {owner.get('host', 'an unknown host')}"
    since = f" since {owner['since']}" if "since" in owner else ""
    alive: bool | None = None  # on another host that can't be seen: see the head of this module
    if owner.get("host", socket.gethostname()) == socket.gethostname() and acquired is not None:
        alive = None if acquired and "host" not in owner else not acquired
    if alive:
        raise RunFolderError(
            f"{folder} is in use by {who}{since}; wait for it, or stop it with"
            f" kill {owner.get('pid', 'PID')}"
        )
    if alive is None and not take_over:
        raise RunFolderError(
            f"{folder} is in use by {who}{since}, and whether that still runs can't be seen from"
            f" here; if it does not, add {TAKE_OVER}"
        )
    return f"taken over from {who}, {f'because of {TAKE_OVER}' if alive is None else 'which ended'}"


def _read(path: Path) -> dict[str, Any] | None:
    """An OWNER file; {} where it is damaged, None where there is none."""
    try:
        return dict(read_json(path, _Owner))
    except FileNotFoundError:
        return None
    except FileError as error:
        if not path.is_file():
            raise RunFolderError(f"{error}; remove it, if no process trains this run") from error
        return {}
