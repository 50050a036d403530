"""A job as a process: the ordinary command, which starts, resumes or has nothing to do."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlfactory.sweep.folder import job_lock, job_output, state_of, take
from rlfactory.sweep.sweep_file import Words
from rlfactory.sweep.table import Job
from rlfactory.utils.processes import start_process

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
    return JobCommand(job, command, run, job_lock(folder, job), job_output(folder, job))


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
