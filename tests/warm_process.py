"""A process that has imported what runs need, and forks off itself what tests want to be run.

Importing takes longer than most of what is tried.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
SEARCHED = os.pathsep.join(str(TESTS.parent / name) for name in ("src", "scripts"))
ENV = {"PYTHONPATH": SEARCHED, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
Attempt = Mapping[str, Any]


class Warm:
    """`dist/trainings.py`, which does the attempts of one test after another."""

    def __init__(self, errors: Path) -> None:
        self.errors = errors
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with errors.open("wb") as told:
            self.process = subprocess.Popen(
                [sys.executable, str(TESTS / "dist" / "trainings.py")],
                **pipes,
                stderr=told,
                env=os.environ | ENV,
                text=True,
            )

    def __call__(self, folder: Path, attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
        """What came of attempts, done in turn in a folder."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = {"folder": str(folder), "attempts": list(attempts)}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        told = [self.process.stdout.readline() for _ in attempts]
        assert all(told), self.errors.read_text()
        return [json.loads(line) for line in told]

    def command(self, folder: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """`rlfactory WORDS`, or a python `script` with words, in one process."""
        (found,) = self(folder, [{"words": words, "processes": 1, **more}])
        (code,) = found["codes"]
        return subprocess.CompletedProcess(words, code, found["out"], found["err"])


@contextmanager
def started(errors: Path) -> Iterator[Warm]:
    """The process, until the last test that needs it has ended."""
    process = Warm(errors)
    yield process
    process.process.communicate()
    assert process.process.returncode == 0, errors.read_text()
