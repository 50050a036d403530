"""The log file of a run: messages, warnings and the traceback of a failure."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlfactory.run.folder import RunFolder
from rlfactory.utils.data_files import read_shown, require_file

LARGEST = 2**30
"""Bytes of a log that are read for its last line."""
log = logging.getLogger(__name__)


class _Log(logging.FileHandler):
    """A log file whose write errors (a full disk, say) neither end the run nor fill the screen."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drop a message that can't be written."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        """Close the file; what can't be written is lost."""
        with suppress(OSError):
            super().close()


@contextmanager
def attach_log(folder: RunFolder, rank: int = 0) -> Iterator[None]:
    """Write the package's log messages, all warnings and an escaping exception to log.txt.

    Ranks other than 0 write errors alone, to `log_rankN.txt`, made with the first one.
    """
    path = folder.log if rank == 0 else folder.path / f"log_rank{rank}.txt"
    if os.path.lexists(path):
        require_file(path, remedy="remove it", may_be_link=False)
    handler = _Log(path, encoding="utf-8", delay=rank > 0)
    handler.setLevel(logging.ERROR if rank else logging.NOTSET)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    package, root = logging.getLogger("rlfactory"), logging.getLogger()
    level = package.level
    package.setLevel(logging.INFO)
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    except Exception:
        # the traceback goes to the file alone, as the terminal shows one line; so not through
        # the logger, whose other handlers may print it
        message, place = "the run failed", (__file__, 0)
        handler.handle(log.makeRecord(log.name, logging.ERROR, *place, message, (), sys.exc_info()))
        raise
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        package.setLevel(level)
        handler.close()


def last_line(log: Path) -> str:
    """The last line of a log, which is the error if a traceback ends it; "" if there is none."""
    lines = read_shown(log, LARGEST).strip().splitlines()
    return lines[-1].strip() if lines else ""
