"""A disk that is full, read-only or gone: to wait for, or to end with one clear message."""

import errno
import logging
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from rlfactory.run.folder import NoRoomError
from rlfactory.run.format import size

FIRST, LONGEST = 1.0, 60.0
"""Seconds to the next attempt: of the first wait, and at most."""
GLANCE = 0.1
FULL = (errno.ENOSPC, errno.EDQUOT)

log = logging.getLogger(__name__)


class DiskError(OSError):
    """What could not be written; the message says why and what to type."""


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Patience:
    """Waits up to so many `seconds` for a disk, unless `is_over` says that there is no time left.

    It is told to `say` once, and to the log.
    """

    folder: Path
    seconds: float = 0.0
    say: Callable[[str], None] = print
    is_over: Callable[[], bool] = _never

    def over(self, write: Callable[[], None], what: str, needed: int = 0) -> None:
        """Do it, again and again while the disk fails; DiskError where patience ends."""
        end, pause = time.monotonic() + self.seconds, FIRST
        while (error := _failure(write)) is not None:
            said = self._told(error, what, needed)
            if time.monotonic() >= end or self.is_over():
                raise DiskError(f"{said}; then type: rlfactory resume {self.folder}") from error
            if pause == FIRST:
                self._tell(f"{said}; trying again for {self.seconds / 60:g} minutes")
            self._wait(min(pause, end - time.monotonic()))
            pause = min(2 * pause, LONGEST)
        if pause > FIRST:
            self._tell(f"{what} could be written now")

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.is_over():
            time.sleep(min(left, GLANCE))

    def _tell(self, said: str) -> None:
        log.warning("%s", said)
        self.say(said)

    def _told(self, error: Exception, what: str, needed: int) -> str:
        """What failed, why, and what helps."""
        if isinstance(error, NoRoomError):
            return f"{what} could not be written: {error}"
        number, reason = _reason(error)
        said = f"{what} could not be written: {reason}"
        if number in FULL:
            said += f" ({_room(self.folder, needed)}); make room"
        return said if number in FULL else f"{said}; see to {self.folder}"


def _failure(write: Callable[[], None]) -> Exception | None:
    """What a disk answered; other errors are not for here."""
    try:
        write()
    except (OSError, NoRoomError) as error:
        return error
    except SafetensorError as error:
        if _reason(error)[0] is None:
            raise
        return error
    return None


def _reason(error: Exception) -> tuple[int | None, str]:
    """An error's number and words; safetensors writes them into its message."""
    if isinstance(error, OSError):
        return error.errno, error.strerror or str(error)
    found = re.search(r"I/O error: (.*?) \(os error (\d+)\)", str(error))
    return (int(found[2]), found[1]) if found else (None, str(error))


def _room(folder: Path, needed: int) -> str:
    asked = f"{size(needed)} needed, " if needed else ""
    try:
        return f"{asked}{size(shutil.disk_usage(folder).free)} free"
    except OSError:
        return f"{asked}and the folder is gone"
