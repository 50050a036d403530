"""What strangers bring, a file a case: `tests/data/strangers/KIND/NAME.yaml`.

Keys of a case:
    why: what the input is, and where it was seen.
    files: texts of files by name, written into the folder that the commands run in.
    make: functions of `made.py` by the name of the folder or file that they write there.
    commands: command lines after `rlfactory`, run in order; all but the last must succeed.
    exit: the exit code of the last one, by default 0.
    says: texts that it prints, and `never`: texts that it must not print.
    finite: metrics that every line of `run/metrics.jsonl` that has them holds as a finite number.
    holds: texts that files of the folder hold afterwards, by path.
No case may print a traceback. A case that needs Python is a file `NAME.py` that its test reads.
"""

import json
import math
import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import made
import pytest
import yaml

CASES = Path(__file__).parents[1] / "data" / "strangers"


def cases(kind: str) -> list[Any]:
    """The parameters of a kind's test."""
    paths = sorted((CASES / kind).glob("*.yaml"))
    return [pytest.param(path, id=path.stem) for path in paths]


def python_cases(kind: str) -> list[Any]:
    """The cases of a kind that are Python."""
    return [pytest.param(p, id=p.stem) for p in sorted((CASES / kind).glob("*.py"))]


def check(path: Path, folder: Path, run: Callable[..., CompletedProcess[str]]) -> None:
    """Give a case's input to `run`, which runs `rlfactory WORDS` in `folder`."""
    case = yaml.safe_load(path.read_text())
    known = {*("why", "files", "make", "commands", "exit", "says", "never", "finite", "holds")}
    assert {"why", "commands"} <= {*case} <= known
    for name, text in case.get("files", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    for name, function in case.get("make", {}).items():
        getattr(made, function)(folder / name)
    *first, last = [shlex.split(line) for line in case["commands"]]
    for words in first:
        done = run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
    done = run(*last)
    shown = done.stdout + done.stderr
    assert done.returncode == case.get("exit", 0), shown
    assert "Traceback" not in shown
    # a terminal's line breaks are not what a case is about
    flat = " ".join(shown.split())
    for text in case.get("says", []):
        assert text in flat, shown
    for text in case.get("never", []):
        assert text not in flat, shown
    for name in case.get("finite", []):
        lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").open()]
        values = [line[name] for line in lines if name in line]
        assert values, f"{name} is not measured"
        assert all(value is not None and math.isfinite(value) for value in values), values
    for name, text in case.get("holds", {}).items():
        assert text in (folder / name).read_text()
