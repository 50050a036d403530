"""Faults happen where and when they are asked for, and never else."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlfactory.utils import fault_injection as fault_module
from rlfactory.utils.fault_injection import ACTIONS, POINTS, VARIABLE, FaultError, fault_point

SOURCE = Path(fault_module.__file__).parents[2]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(fault_module, "_passed", {})


def test_nothing_happens_unasked() -> None:
    for point in POINTS:
        fault_point(point)


def test_it_happens_at_its_point_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "saving:raise")
    fault_point("sampling")
    with pytest.raises(FaultError, match="requested at saving by RLFACTORY_FAULT"):
        fault_point("saving")
    fault_point("saving")


def test_it_happens_the_time_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "scoring:raise:3")
    fault_point("scoring")
    fault_point("saving")
    fault_point("scoring")
    with pytest.raises(FaultError):
        fault_point("scoring")


@pytest.mark.parametrize(("action", "number"), [("kill", signal.SIGKILL), ("term", signal.SIGTERM)])
def test_a_process_ends_itself(action: str, number: int) -> None:
    code = (
        "from rlfactory.utils.fault_injection import fault_point;"
        " fault_point('renaming'); print('went on')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(SOURCE), VARIABLE: f"renaming:{action}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -number
    assert done.stdout == ""


@pytest.mark.parametrize("wish", ["here:kill", "saving:burn", "saving:kill:x", "saving", ""])
def test_a_wish_that_says_nothing_is_refused(wish: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, wish)
    with pytest.raises(ValueError, match=re.escape(", ".join(ACTIONS))):
        fault_point("saving")


def test_each_point_is_in_one_place_of_the_code() -> None:
    named = [
        name
        for path in (SOURCE / "rlfactory").rglob("*.py")
        for name in re.findall(r'\bfault_point\("(\w+)"\)', path.read_text(encoding="utf-8"))
    ]
    assert sorted(named) == sorted(POINTS)
