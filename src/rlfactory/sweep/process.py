"""A job as a process, the ordinary command, which starts, resumes or has nothing to do; and a pool
that runs several at once. A failure does not stop the others.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from rlfactory.sweep.folder import job_output, state_of, take
from rlfactory.sweep.sweep_file import Words
from rlfactory.sweep.table import Job
from rlfactory.utils.processes import signal_handlers, start_process

COMMAND = [sys.executable, "-P", "-m", "rlfactory.cli"]
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+")


@dataclass(frozen=True)
class JobCommand:
    """A job with its command and its files; it can be pickled and run on another machine."""

    job: Job
    command: Words
    run: Path
    lock: Path
    output: Path

    @property
    def can_start(self) -> bool:
        """Whether the job that this one begins with is done, if there is one."""
        return self.job.after is None or state_of(self.run.parent / self.job.after) == "done"


def launch_of(job: Job, folder: Path) -> JobCommand:
    """The command of a job of the sweep in `folder`."""
    run = folder / job.folder
    command = [*COMMAND, *words_of(job, folder)]
    output = job_output(folder, job)
    return JobCommand(job, command, run, output.with_suffix(".lock"), output)


def words_of(job: Job, folder: Path) -> Words:
    """The words after `rlfactory` that run this job by itself."""
    begin = [] if job.after is None else [f"begin_from={_quoted(folder / job.after)}"]
    return [*job.overrides, *begin, f"run_dir={_quoted(folder / job.folder)}"]


def command_of(job: Job, folder: Path) -> str:
    """The same as a line for the shell."""
    return shlex.join(["rlfactory", *words_of(job, folder)])


def _quoted(path: Path) -> str:
    text = str(path)
    return text if set(text) <= _PLAIN else "'" + text.replace("'", "\\'") + "'"


def begin(launch: JobCommand, lock: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a job; the caller holds its lock.

    The job has a session of its own, so that Ctrl-C reaches only the sweep, which forwards it. It
    inherits the lock, and gets SIGTERM when the thread that started it ends.
    """
    with launch.output.open("ab") as output:
        return start_process(launch.command, environment, output, [lock])


def run_here(launch: JobCommand, environment: Mapping[str, str]) -> int:
    """Run a job to its end, after any other process that still runs it; returns the exit code."""
    launch.output.parent.mkdir(parents=True, exist_ok=True)
    lock = take(launch.lock, wait=True)
    assert lock is not None
    try:
        if state_of(launch.run) == "done":
            return 0
        process = begin(launch, lock, environment)
        return process.wait()
    finally:
        os.close(lock)


def environment(sweep: str, threads: int | None, gpu: str | None = None) -> dict[str, str]:
    """Environment variables of a job: the sweep's name, its number of threads, its GPU."""
    found = {"RLFACTORY_SWEEP": sweep, "PYTHONUNBUFFERED": "1"}
    if threads is not None and "OMP_NUM_THREADS" not in os.environ:
        found["OMP_NUM_THREADS"] = str(threads)
    return found if gpu is None else found | {"CUDA_VISIBLE_DEVICES": gpu}


def cores() -> int:
    """How many CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


PAUSE = 0.1


class SweepListener(Protocol):
    """Receives the states of jobs while they run."""

    def change(self, name: str, state: str) -> None:
        """A job begins (`running`), is run by another process (`held`), or ends."""

    def refresh(self) -> None:
        """Called about ten times a second."""


@dataclass
class StopRequest:
    """The signals received so far, each a request to stop. True after the first one."""

    signals: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.signals)


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Record SIGINT and SIGTERM instead of ending this process."""
    asked = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:
        asked.signals.append(number)

    with signal_handlers(note, (signal.SIGINT, signal.SIGTERM)):
        yield asked


@dataclass
class _Running:
    launch: JobCommand
    process: subprocess.Popen[bytes]
    lock: int


class Pool:
    """Runs jobs until none is left or a signal asks to stop.

    `environments` has the environment variables of each slot; one job runs in each slot at a time.
    """

    def __init__(
        self, environments: Sequence[Mapping[str, str]], watcher: SweepListener, asked: StopRequest
    ) -> None:
        self.environments, self.watcher, self.asked = environments, watcher, asked
        self._running: dict[int, _Running] = {}
        self._waiting: list[JobCommand] = []
        self._forwarded = 0

    def __call__(self, launches: Sequence[JobCommand]) -> None:
        """Run jobs in order, each once its earlier stage is done."""
        self._waiting = [*launches]
        while self._running or (self._waiting and not self.asked):
            self._forward_signals()
            if not self.asked:
                self._fill()
            self._collect()
            self.watcher.refresh()
            time.sleep(PAUSE)

    def _fill(self) -> None:
        """Start a job in each free slot."""
        for slot in range(len(self.environments)):
            if slot not in self._running:
                self._start_one(slot)

    def _start_one(self, slot: int) -> None:
        for launch in [*self._waiting]:
            ready = self._is_ready(launch)
            if ready is None:
                self._waiting.remove(launch)
                self.watcher.change(launch.job.name, "blocked")
            elif ready and self._start(slot, launch):
                return

    def _is_ready(self, launch: JobCommand) -> bool | None:
        """Whether a job can start now; None if it never can, because its earlier stage failed."""
        if launch.can_start:
            return True
        ahead = [r.launch for r in self._running.values()] + self._waiting
        return False if any(other.job.name == launch.job.after for other in ahead) else None

    def _start(self, slot: int, launch: JobCommand) -> bool:
        """Start a job, unless it is done or a process of an earlier command still runs it."""
        name = launch.job.name
        launch.lock.parent.mkdir(parents=True, exist_ok=True)
        lock = take(launch.lock)
        if lock is None:
            self.watcher.change(name, "held")
            return False
        self._waiting.remove(launch)
        if state_of(launch.run) == "done":
            os.close(lock)
            self.watcher.change(name, "done")
            return False
        process = begin(launch, lock, self.environments[slot])
        self._running[slot] = _Running(launch, process, lock)
        self.watcher.change(name, "running")
        return True

    def _collect(self) -> None:
        """Release the slots of jobs that have ended, and report their outcome."""
        for slot, running in [*self._running.items()]:
            if running.process.poll() is None:
                continue
            os.close(running.lock)
            del self._running[slot]
            name = running.launch.job.name
            done = state_of(running.launch.run) == "done"
            ended = "done" if done else "stopped" if self.asked else "failed"
            self.watcher.change(name, ended)

    def _forward_signals(self) -> None:
        """Send each new signal on to the jobs; the third one kills them."""
        for number in self.asked.signals[self._forwarded :]:
            self._forwarded += 1
            kill = self._forwarded > 2
            for running in self._running.values():
                running.process.send_signal(signal.SIGKILL if kill else number)


Runner = Callable[[Sequence[JobCommand]], None]
