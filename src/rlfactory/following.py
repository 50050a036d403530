"""One of several processes that train together, and that another one leads."""

import os
from pathlib import Path

from rlfactory.build import Config, hardware_of
from rlfactory.hardware.base import CommonError, LostError
from rlfactory.joining import joined, told_apart
from rlfactory.run.folder import RunFolder
from rlfactory.run.signals import Stop
from rlfactory.saying import say_error
from rlfactory.session import Session


def follow(path: Path | None, config: Config, until: int | None = None, force: bool = False) -> int:
    """Train as the others do; returns the exit code. Where no `path` is given, the process that
    leads says what the run folder is.
    """
    stop, folder = Stop(quiet=True), None
    try:
        with stop:
            hardware = hardware_of(config)
            folder = RunFolder(joined(hardware, config, path))
            with folder.attach_log(hardware.rank):
                outcome = Session(config, folder, until, force, stop, hardware).run()
            hardware.close()
    except KeyboardInterrupt:
        return stop.code
    except Exception as error:
        # the process that leads tells what is in our log, or says the same by itself
        if folder is None and not isinstance(told_apart(error), CommonError | LostError):
            say_error(f"in process {os.environ.get('RANK', '?')}: {error}")
        return 1
    return 0 if outcome in ("done", "paused") else stop.code
