"""Which GPUs there are, and whose turn it is."""

import stat
from pathlib import Path

import pytest

from rlfactory.sweep.gpus import gpu_of, gpus


def test_round_robin() -> None:
    assert [gpu_of(slot, ["2", "5"]) for slot in range(3)] == ["2", "5", "2"]
    assert gpu_of(1, []) is None


def test_what_is_visible_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-ab")
    assert gpus() == ["3", "GPU-ab"]
    assert gpus(["0"]) == ["0"]
    for none in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)
        assert gpus() == []


@pytest.mark.parametrize(("script", "found"), [("echo 0; echo 1", ["0", "1"]), ("exit 9", [])])
def test_else_all_that_the_driver_knows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, found: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus() == []
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    assert gpus() == found
