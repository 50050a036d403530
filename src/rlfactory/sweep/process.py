"""A job as a process, the ordinary command, which starts, resumes or has nothing to do; a pool that
runs several at once, and Hydra's launchers, which run them in other processes or on other machines.
A failure does not stop the others.
"""

import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol

from rlfactory.config._hydra import CompositionError, launcher_options, run_with_hydra_launcher
from rlfactory.config.problems import PlanError, Problem, override_key
from rlfactory.config.words import typed_value
from rlfactory.sweep.sweep_arguments import LAUNCHERS, SweepArguments, is_installed
from rlfactory.sweep.sweep_file import Words
from rlfactory.sweep.sweep_folder import job_output, state_of, take
from rlfactory.sweep.table import Job
from rlfactory.utils.processes import SIGNALS, signal_handlers, start_process

COMMAND = [sys.executable, "-P", "-m", "rlfactory.cli"]


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
    begin = [] if job.after is None else [f"begin_from={typed_value(folder / job.after)}"]
    return [*job.overrides, *begin, f"run_dir={typed_value(folder / job.folder)}"]


def command_of(job: Job, folder: Path) -> str:
    """The same as a line for the shell."""
    return shlex.join(["rlfactory", *words_of(job, folder)])


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
        return 0 if state_of(launch.run) == "done" else begin(launch, lock, environment).wait()
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


StopRequest = list[int]
"""The signals received so far, each a request to stop."""


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Record signals that ask to stop instead of ending this process."""
    asked = StopRequest()
    with signal_handlers(lambda number, frame: asked.append(number), SIGNALS):
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
        """Start a job in each free slot; one whose earlier stage failed never can."""
        for slot in range(len(self.environments)):
            for launch in () if slot in self._running else [*self._waiting]:
                ahead = [r.launch for r in self._running.values()] + self._waiting
                if launch.can_start:
                    if self._start(slot, launch):
                        break
                elif all(other.job.name != launch.job.after for other in ahead):
                    self._waiting.remove(launch)
                    self.watcher.change(launch.job.name, "blocked")

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
            done = state_of(running.launch.run) == "done"
            ended = "done" if done else "stopped" if self.asked else "failed"
            self.watcher.change(running.launch.job.name, ended)

    def _forward_signals(self) -> None:
        """Send each new signal on to the jobs; the third one kills them."""
        for number in self.asked[self._forwarded :]:
            self._forwarded += 1
            kill = self._forwarded > 2
            for running in self._running.values():
                running.process.send_signal(signal.SIGKILL if kill else number)


Runner = Callable[[Sequence[JobCommand]], None]
log = logging.getLogger(__name__)


def require_launcher(name: str, words: Sequence[str] = ()) -> None:
    """PlanError unless a launcher, set up by `hydra.launcher.KEY=VALUE`, can start jobs here."""
    package = LAUNCHERS[name]
    if package and not is_installed(package):
        message = f"{name} is not installed; type pip install {package}"
        raise PlanError([Problem("hydra/launcher", message)])
    if name == "submitit_slurm" and shutil.which("srun") is None:
        message = "submitit_slurm needs SLURM, and there is no srun here; submitit_local needs none"
        raise PlanError([Problem("hydra/launcher", message, "hydra/launcher=submitit_local")])
    known = launcher_options(name) if package and words else []
    for word in words:
        key = override_key(word)
        if key.split(".")[2] not in known:
            read = f"known here: {', '.join(known)}" if known else f"{name} reads none"
            raise PlanError([Problem(key, f"there is no such key; {read}")])
        try:
            launcher_options(name, [word])
        except CompositionError as error:
            reason = " ".join(str(error.__cause__ or error).split())
            raise PlanError([Problem(key, reason)]) from error


class HydraLauncher:
    """Runs jobs in waves: each wave has the jobs whose earlier stage is done."""

    def __init__(
        self,
        request: SweepArguments,
        folder: Path,
        environments: Sequence[Mapping[str, str]],
        watcher: SweepListener,
        asked: StopRequest,
    ) -> None:
        self.name, self.folder = request.launcher, folder
        self.environments, self.watcher, self.asked = environments, watcher, asked
        # submitit_local starts all jobs of a wave at the same time
        self.most_at_once = len(environments) if self.name == "submitit_local" else None
        at_once = {"joblib": "n_jobs", "submitit_slurm": "array_parallelism"}.get(self.name)
        own = [f"hydra.launcher.{at_once}={len(environments)}"] if at_once else []
        self.words = [*own, *request.launcher_words]

    def __call__(self, launches: Sequence[JobCommand]) -> None:
        """Run jobs; the outcome of each is the status in its folder."""
        left = [command for command in launches if not self._note_done(command)]
        while not self.asked and (wave := [command for command in left if command.can_start]):
            wave = wave[: self.most_at_once]
            self._run(wave)
            left = [command for command in left if command not in wave]
        for command in [] if self.asked else left:
            self.watcher.change(command.job.name, "blocked")

    def _note_done(self, command: JobCommand) -> bool:
        done = state_of(command.run) == "done"
        if done:
            self.watcher.change(command.job.name, "done")
        return done

    def _run(self, wave: Sequence[JobCommand]) -> None:
        """Run a wave; an error of the launcher is printed, so that later waves still run."""
        for command in wave:
            self.watcher.change(command.job.name, "running")
        work = partial(run_number, [*wave], [*self.environments])
        try:
            with _interruptible(self.asked):
                run_with_hydra_launcher(self.name, self.words, self.folder, work, len(wave))
        except CompositionError as error:
            reason = " ".join(str(error).split())
            raise PlanError([Problem("hydra.launcher", reason)]) from error
        except Exception as error:  # from a plug-in or its scheduler: of any type
            log.exception("hydra/launcher=%s", self.name)
            print(f"hydra/launcher={self.name}: {error}", file=sys.stderr)
        for command in wave:
            if not self._note_done(command):
                self.watcher.change(command.job.name, "stopped" if self.asked else "failed")


def run_number(
    launches: Sequence[JobCommand], environments: Sequence[Mapping[str, str]], number: int
) -> int:
    """Run one job of a wave, where the launcher has started this."""
    return run_here(launches[number], environments[number % len(environments)])


@contextmanager
def _interruptible(asked: StopRequest) -> Iterator[None]:
    """Let a signal interrupt the wait for workers; their jobs are asked to stop as they end."""

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), signal_handlers(note, SIGNALS):
        yield
