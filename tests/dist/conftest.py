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
Sitting = Mapping[str, Any]
Ran = Callable[[Sequence[Sitting]], list[dict[str, Any]]]


@pytest.fixture
def ran(tmp_path: Path) -> Ran:
    """What came of sittings, each with its words and processes, done in turn in one folder."""

    def run(sittings: Sequence[Sitting]) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, str(HERE / "teams.py")],
            input=json.dumps(list(sittings)),
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src"), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run
