"""Runs a program and its tests in a process of its own, within limits."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

RUNNER = Path(__file__).with_name("program_runner.py")
START_SECONDS = 30.0
"""How long a process may take to start, beside the time of the program."""


class NotRunError(Exception):
    """The program could not be run, which is no fault of its own."""


@dataclass(frozen=True)
class Limits:
    """Limits of one program with all its tests.

    Attributes:
        seconds: of wall-clock time.
        memory: bytes of address space.
        packages: whether installed packages can be imported, not the standard library alone.
    """

    seconds: float
    memory: int
    packages: bool = False


def count_passed(code: str, tests: Sequence[str], limits: Limits) -> int:
    """The number of tests that pass after a program, which has a folder of its own while it runs.

    A program that raises, exits, or breaks a limit passes none.

    Raises:
        NotRunError: its process did not get as far as running it.
    """
    token = secrets.token_hex(16)
    request: dict[str, object] = {"code": code, "tests": [*tests], "token": token}
    request |= {"seconds": limits.seconds, "memory": limits.memory}
    # isolated: no variables, no user packages, nothing of the folder
    flags = ["-I", "-B"] if limits.packages else ["-I", "-B", "-S"]
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            process = subprocess.Popen(
                [sys.executable, *flags, str(RUNNER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={"OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        except OSError as error:
            raise NotRunError(str(error)) from error
        return _count(_output(process, json.dumps(request), limits.seconds), token)


def _output(process: "subprocess.Popen[bytes]", request: str, seconds: float) -> str:
    """What the process writes until it ends or is killed, with all of its session."""
    try:
        output, _ = process.communicate(request.encode(), seconds + START_SECONDS)
    except subprocess.TimeoutExpired:
        _kill(process)
        output, _ = process.communicate()
    except BaseException:
        _kill(process)
        raise
    return output.decode(errors="replace")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()


def _count(output: str, token: str) -> int:
    lines = output.splitlines()
    if lines[:1] != ["ready"]:
        raise NotRunError("its process did not start")
    reports = [line.split() for line in lines if line.startswith(token)]
    return int(reports[0][1]) if reports else 0
