"""Configurations of other libraries: the printed command works when it is pasted."""

import shlex
from pathlib import Path

import pytest
import yaml
from cases import cases, check

from tests.conftest import Command


@pytest.mark.parametrize("path", cases("imports"))
def test_right_or_one_line(path: Path, tmp_path: Path, here: Command) -> None:
    check(path, tmp_path, here)
    case = yaml.safe_load(path.read_text())
    if not case.get("exit"):
        printed = here(*shlex.split(case["commands"][-1])).stdout
        words = [word for word in shlex.split(printed, comments=True) if word != "\n"]
        done = here("check", *words[1:])
        assert done.returncode == 0, done.stderr
