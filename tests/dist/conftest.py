"""What tests of several processes share."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ENV = {"PYTHONPATH": str(HERE.parents[1] / "src"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
Attempt = Mapping[str, Any]
Ran = Callable[[Sequence[Attempt]], list[dict[str, Any]]]


@pytest.fixture
def ran(tmp_path: Path) -> Ran:
    """What came of attempts, each with its words and processes, done in turn in one folder."""

    def run(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, str(HERE / "teams.py")],
            input=json.dumps(list(attempts)),
            cwd=tmp_path,
            env=os.environ | ENV,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


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
