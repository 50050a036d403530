"""One of a run's processes, as `launch` starts it: `python -m rlfactory.rank RUN`."""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from rlfactory.launch import Sitting, words_of
from rlfactory.on_run import silence_notices
from rlfactory.targets import import_from_here

GLANCE = 1.0


def main(argv: Sequence[str]) -> int:
    """Train until the end of the sitting; the exit code."""
    sitting = words_of(argv)
    import_from_here()
    silence_notices()
    _end_with(os.getppid())
    return train(sitting)


def train(sitting: Sitting) -> int:
    """The part of this process: the first one leads, the others follow."""
    from rlfactory import worker
    from rlfactory.run.folder import RunFolder

    if os.environ["RANK"] == "0":
        return worker.run(sitting.run, sitting.until, sitting.force, sitting.take_over)
    from rlfactory.following import follow

    config = worker.read_config(RunFolder(sitting.run))
    return follow(sitting.run, config, sitting.until, sitting.force)


def _end_with(parent: int) -> None:
    """Ask this process to stop once whoever started it is gone, as by SIGKILL."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(GLANCE)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
