"""What tests of several processes share."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from warm_process import ENV, Attempt, Warm

Ran = Callable[[Sequence[Attempt]], list[dict[str, Any]]]


@pytest.fixture
def ran(warm: Warm, tmp_path: Path) -> Ran:
    """What came of attempts, each with its words and processes, done in turn in one folder."""
    return partial(warm, tmp_path)


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
