"""Asking SLURM to begin a job again, by a stand-in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.run.requeue import requeue

Slurm = Callable[[str], Path]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """A `scontrol` of these lines, that writes down what it was told."""

    def make(lines: str) -> Path:
        script = tmp_path / "scontrol"
        script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n{lines}\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return tmp_path / "told"

    return make


def test_the_job_is_named(slurm: Slurm) -> None:
    told = slurm("exit 0")
    requeue("42")
    assert told.read_text() == "requeue 42\n"


def test_a_refusal_is_told(slurm: Slurm) -> None:
    slurm("echo 'Requested operation is presently disabled' >&2; exit 1")
    with pytest.raises(RuntimeError, match="requeue 42 failed: Requested operation is presently"):
        requeue("42")


def test_where_there_is_no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="No such file"):
        requeue("42")
