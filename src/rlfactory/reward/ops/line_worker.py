"""A process that answers JSON lines, replaced where it dies."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


class WorkerDied(Exception):
    """The process ended, or was killed, before it answered."""


class LineWorker:
    """Runs a Python file that answers each line of JSON with one, and limits its own time.

    The process is started when it is first asked, and anew when it has died. It ends with this
    one, whose end closes its input.

    Args:
        program: the file.
        first: a line that each new process gets first.
    """

    def __init__(self, program: Path, first: object) -> None:
        # -P: the program's folder does not come before installed packages
        self._command = [sys.executable, "-P", str(program)]
        self._first = first
        self._process: subprocess.Popen[str] | None = None

    def ask(self, question: object) -> Any:
        """The answer to a question; WorkerDied where there is none."""
        if self._process is None:
            self._process = _start(self._command)
            self._write(self._first)
        self._write(question)
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            status = self._process.wait()
            self.close()
            raise WorkerDied(f"exit status {status}")
        return json.loads(answer)

    def _write(self, value: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            log.debug("the process is gone")  # reading from it says so too

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _start(command: list[str]) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    # a session of its own, so that Ctrl-C reaches this process alone
    return subprocess.Popen(
        command,
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
