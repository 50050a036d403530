"""Disk errors as one clear message: what could not be written, why, and what to type."""

import errno
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from rlfactory.run.folder import NoRoomError
from rlfactory.utils.console import size

FULL = (errno.ENOSPC, errno.EDQUOT)
OF_DISK = (*FULL, errno.EROFS, errno.EIO, errno.EFBIG)
"""Errors that nothing but a disk has: a connection or a file of the user's may have the others."""


class DiskError(OSError):
    """A file of the run could not be written; the message says why and what to type."""


@contextmanager
def explain_disk_errors(
    folder: Path,
    what: str,
    needed: int = 0,
    *,
    resumes: bool = True,
    numbers: Sequence[int] | None = None,
) -> Iterator[None]:
    """Turn an error of the disk into a DiskError that names what could not be written.

    Args:
        folder: the run folder.
        what: what is written, the first words of the message.
        needed: the bytes that it takes, if known; named where the disk is full.
        resumes: whether the message tells the user to resume the run.
        numbers: the error numbers that are explained; None: all.

    Raises:
        DiskError: the disk is full, over its quota, read-only or no longer there. Other errors
            pass unchanged.
    """
    try:
        yield
    except (OSError, NoRoomError, SafetensorError) as error:
        if isinstance(error, DiskError):  # explained already, by a block within this one
            raise
        number = _reason(error)[0]
        if isinstance(error, SafetensorError) and number is None:
            raise  # not about the disk
        if numbers is not None and number not in numbers:
            raise
        advice = _describe(error, folder, what, needed)
        command = f"; then type: rlfactory resume {shlex.quote(str(folder))}" if resumes else ""
        raise DiskError(f"{advice}{command}") from error


def _describe(error: Exception, folder: Path, what: str, needed: int) -> str:
    """What failed, why, and what helps."""
    if isinstance(error, NoRoomError):
        return f"{what} could not be written: {error}"
    number, reason = _reason(error)
    message = f"{what} could not be written: {reason}"
    if number in FULL:
        return f"{message} ({_free_space(folder, needed)}); make room"
    if number == errno.EFBIG:
        return f"{message}; raise the limit on a file's size (ulimit -f)"
    return f"{message}; check the disk of {folder}"


def _reason(error: Exception) -> tuple[int | None, str]:
    """An error's number and words; safetensors has them in its message alone."""
    if isinstance(error, OSError):
        return error.errno, error.strerror or str(error)
    match = re.search(r"I/O error: (.*?) \(os error (\d+)\)", str(error))
    return (int(match[2]), match[1]) if match else (None, str(error))


def _free_space(folder: Path, needed: int) -> str:
    needs = f"{size(needed)} needed, " if needed else ""
    try:
        return f"{needs}{size(shutil.disk_usage(folder).free)} free"
    except OSError:
        return f"{needs}and the folder no longer exists"
