"""One attempt of a run: the command, in a process forked from one that has its imports behind it.

So an attempt begins within a tenth of a second instead of ten, and is as alone as any process: it
can be killed at any moment.
"""

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import connection, forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from rlfactory.utils.fault_injection import VARIABLE

SCRIPTS = Path(__file__).parents[1]
SOURCE = SCRIPTS.parent / "src"
CONTEXT = multiprocessing.get_context("forkserver")
ONE_AT_A_TIME = threading.Lock()
"""A start reads how others ended; of two threads that read that of one at once, one gets 255."""


@dataclass
class Attempt:
    """A running command. Its words and the phases it came to are in files beside each other."""

    process: ForkServerProcess
    said: Path
    phases: Path
    began: float

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it ended by itself, within this time if one is given."""
        connection.wait([self.process.sentinel], seconds)
        return self.code is not None

    def wait_for(self, path: Path) -> None:
        """Until there is such a file or folder, or the command has ended."""
        while not path.exists() and not self.wait(0):
            time.sleep(0.001)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.wait()

    @property
    def code(self) -> int | None:
        """How it ended: the exit code, or minus the signal."""
        with ONE_AT_A_TIME:
            return self.process.exitcode

    def came_to(self) -> list[tuple[str, float]]:
        """The phases of the loop and when they began, as seconds of the clock."""
        if not self.phases.exists():
            return []
        lines = [line.split() for line in self.phases.read_text().splitlines()]
        return [(name, float(at)) for name, at in lines]


@cache
def warm_up() -> None:
    """Have the process ready that others are forked from; before any of them."""
    before = dict(os.environ)
    path = [str(SCRIPTS), str(SOURCE), before.get("PYTHONPATH", "")]
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)}
    os.environ["RLFACTORY_TRUST"] = "faulty"  # the logger of `--files`
    forkserver._forkserver._stop()  # that of tests before, which has other imports
    CONTEXT.set_forkserver_preload(["faulty.warm"])
    first = CONTEXT.Process(target=_is_warm)
    try:
        first.start()  # and with it the process that has our environment from now on
    finally:
        os.environ.clear()
        os.environ |= before
    first.join()
    if first.exitcode != 0:
        raise RuntimeError("the process to fork from has not imported rlfactory")


def start_attempt(
    words: Sequence[str], logs: Path, fault: str = "", before: Callable[[], None] | None = None
) -> Attempt:
    """Begin `rlfactory WORDS`, with a fault if one is wished for; `before` is called in it."""
    logs.mkdir(parents=True, exist_ok=True)
    number = len([*logs.glob("*.out")])
    said, phases = logs / f"{number:02d}.out", logs / f"{number:02d}.phases"
    run = partial(_run, list(words), said, phases, fault, before)
    process = CONTEXT.Process(target=run)
    began = time.time()
    with ONE_AT_A_TIME:
        process.start()
    return Attempt(process, said, phases, began)


def _is_warm() -> None:
    sys.exit(0 if "rlfactory.train.process.worker" in sys.modules else 1)


def _run(
    words: list[str], said: Path, phases: Path, fault: str, before: Callable[[], None] | None
) -> None:
    _send_output(said)
    if fault:
        os.environ[VARIABLE] = fault
    _note_phases(phases)
    if before is not None:
        before()
    from rlfactory.cli import app

    sys.argv = ["rlfactory", *words]
    app.main()


def _send_output(said: Path) -> None:
    handle = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(handle, 1)
    os.dup2(handle, 2)


def _note_phases(path: Path) -> None:
    """Have the loop write down what it comes to: a line that is there whatever happens next."""
    from rlfactory.run.progress import Progress

    handle, phase = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), Progress.phase

    def noted(progress: Progress, name: str, *, total: int) -> None:
        os.write(handle, f"{name} {time.time()}\n".encode())
        phase(progress, name, total=total)

    Progress.phase = noted  # type: ignore[method-assign]
