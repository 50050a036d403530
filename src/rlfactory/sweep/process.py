"""A job as a process: the ordinary command, which starts, goes on or has nothing to do."""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlfactory.sweep.folder import job_lock, job_output, take
from rlfactory.sweep.source import Words
from rlfactory.sweep.status import state_of
from rlfactory.sweep.table import Job

COMMAND = [sys.executable, "-P", "-m", "rlfactory.cli"]
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+")


@dataclass(frozen=True)
class Launch:
    """What is needed to run a job, in this process or in one elsewhere."""

    job: Job
    command: Words
    run: Path
    lock: Path
    output: Path


def launch_of(job: Job, folder: Path) -> Launch:
    """A job of the sweep in `folder`."""
    run = folder / job.folder
    command = [*COMMAND, *words_of(job, folder)]
    return Launch(job, command, run, job_lock(folder, job), job_output(folder, job))


def words_of(job: Job, folder: Path) -> Words:
    """What is typed after `rlfactory` to run a job by itself."""
    begin = [] if job.after is None else [f"begin_from={_quoted(folder / job.after)}"]
    return [*job.overrides, *begin, f"run_dir={_quoted(folder / job.folder)}"]


def command_of(job: Job, folder: Path) -> str:
    """The same as a line for a shell."""
    return shlex.join(["rlfactory", *words_of(job, folder)])


def _quoted(path: Path) -> str:
    text = str(path)
    return text if set(text) <= _PLAIN else "'" + text.replace("'", "\\'") + "'"


def begin(launch: Launch, lock: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a job whose lock is held, in a session of its own, so that Ctrl-C reaches us alone.

    It inherits the lock, and is asked to stop when the thread that began it ends.
    """
    with launch.output.open("ab") as output:
        return subprocess.Popen(
            launch.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            pass_fds=[lock],
            start_new_session=True,
            preexec_fn=_dies_with(os.getpid()),
        )


def run_here(launch: Launch, environment: Mapping[str, str]) -> int:
    """Run a job to its end where some launcher has put us, waiting for who may still be at it."""
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
    """What a job's environment has besides: the sweep's name, its share of the cores, its GPU."""
    found = {"RLFACTORY_SWEEP": sweep, "PYTHONUNBUFFERED": "1"}
    if threads is not None and "OMP_NUM_THREADS" not in os.environ:
        found["OMP_NUM_THREADS"] = str(threads)
    return found if gpu is None else found | {"CUDA_VISIBLE_DEVICES": gpu}


def cores() -> int:
    """How many cores we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _dies_with(parent: int) -> Callable[[], None] | None:
    """What a child does to be asked to stop when its parent is killed, where the system can."""
    if sys.platform != "linux":
        return None
    libc, pr_set_pdeathsig = ctypes.CDLL(None), 1

    def bind() -> None:
        libc.prctl(pr_set_pdeathsig, signal.SIGTERM)
        if os.getppid() != parent:  # it was killed before we could ask
            os._exit(128 + signal.SIGTERM)

    return bind
