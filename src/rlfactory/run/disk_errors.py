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
    """Turn an error of the disk into a DiskError that names `what` could not be written.

    Args:
        needed: the bytes that it takes, if known; named where the disk is full.
        resumes: whether the message tells the user to resume the run.
        numbers: the error numbers that are explained; None: all.

    Raises:
        DiskError: the disk is full, over its quota, read-only or no longer there. Other errors
            pass unchanged.
    """
    try:
        yield
    except DiskError:  # explained already, by a block within this one
        raise
    except (OSError, NoRoomError, SafetensorError) as error:
        number, reason = _reason(error)
        is_of_file = isinstance(error, SafetensorError) and number is None
        if is_of_file or (numbers is not None and number not in numbers):
            raise  # not about the disk
        if number in FULL:
            advice = f" ({_free_space(folder, needed)}); make room"
        elif number == errno.EFBIG:
            advice = "; raise the limit on a file's size (ulimit -f)"
        else:  # the message of a NoRoomError says what helps
            advice = "" if isinstance(error, NoRoomError) else f"; check the disk of {folder}"
        command = f"; then type: rlfactory resume {shlex.quote(str(folder))}" if resumes else ""
        raise DiskError(f"{what} could not be written: {reason}{advice}{command}") from error


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
