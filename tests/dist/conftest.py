"""What tests of several processes share."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ENV = {"PYTHONPATH": str(HERE.parents[1] / "src"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
Attempt = Mapping[str, Any]
Ran = Callable[[Sequence[Attempt]], list[dict[str, Any]]]


class Warm:
    """A script that has imported what runs need, and does the attempts of one test after another.

    Importing takes longer than most of what is tried.
    """

    def __init__(self, script: str, errors: Path) -> None:
        self.errors = errors
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with errors.open("wb") as told:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / script)],
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


def warm(script: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """The script, until the last test that needs it has ended."""
    started = Warm(script, tmp_path_factory.mktemp("warm") / "errors.txt")
    yield started
    started.process.communicate()
    assert started.process.returncode == 0, started.errors.read_text()


@pytest.fixture(scope="session")
def teams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Runs of the command, of one and of several processes."""
    yield from warm("teams.py", tmp_path_factory)


@pytest.fixture(scope="session")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Trainings whose traffic is counted."""
    yield from warm("trainings.py", tmp_path_factory)


@pytest.fixture
def ran(teams: Warm, tmp_path: Path) -> Ran:
    """What came of attempts, each with its words and processes, done in turn in one folder."""
    return partial(teams, tmp_path)


@pytest.fixture
def typed(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs python with some words in an empty folder; they start processes of their own."""

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=os.environ | ENV,
            capture_output=True,
            text=True,
            check=False,
        )

    return call
