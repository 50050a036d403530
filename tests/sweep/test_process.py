"""A job as a process: its words, its environment, and that it ends with who began it."""

import os
import shlex
from pathlib import Path

import pytest

from rlfactory.config.overrides import compose
from rlfactory.sweep import process
from rlfactory.sweep.folder import take
from rlfactory.sweep.process import (
    command_of,
    cores,
    environment,
    launch_of,
    run_here,
    words_of,
)
from rlfactory.sweep.table import Job

JOB = Job("b-s0", "b", "b-s0", ["algo=nft", "seed=0"], {"seed": 0}, "a-s0")


def test_a_job_is_an_ordinary_command() -> None:
    words = words_of(JOB, Path("s"))
    assert words == ["algo=nft", "seed=0", "begin_from=s/a-s0", "run_dir=s/b-s0"]
    assert command_of(JOB, Path("s")) == "rlfactory " + " ".join(words)


@pytest.mark.parametrize("folder", ["plain/x", "with space", "a=b,c", "it's", "[x]"])
def test_any_folder_can_be_typed(folder: str) -> None:
    (*_, begin, run) = shlex.split(command_of(JOB, Path(folder)))
    values = compose([begin, run]).values
    assert (values["run_dir"], values["begin_from"]) == (f"{folder}/b-s0", f"{folder}/a-s0")


def test_a_share_of_the_cores_a_gpu_and_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = environment("x-tiny", 3, "1")
    assert found["OMP_NUM_THREADS"] == "3"
    assert found["CUDA_VISIBLE_DEVICES"] == "1"
    assert found["RLFACTORY_SWEEP"] == "x-tiny"
    assert "CUDA_VISIBLE_DEVICES" not in environment("x", 3)
    assert "OMP_NUM_THREADS" not in environment("x", None)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert "OMP_NUM_THREADS" not in environment("x", 3)
    assert cores() >= 1


def test_run_here_runs_what_is_not_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stand_in: Path
) -> None:
    monkeypatch.setattr(process, "COMMAND", [*process.COMMAND[:1], "-S", "-E", str(stand_in)])
    job = Job("a-s0", "a", "a-s0", ["iterations=2", "seed=0"])
    launch = launch_of(job, tmp_path)
    assert run_here(launch, {"CUDA_VISIBLE_DEVICES": "5"}) == 0
    assert (launch.run / "finished").read_text() == "5\n"
    stand_in.write_text("raise SystemExit(3)")
    assert run_here(launch, {}) == 0, "what is done is not begun again"
    (launch.run / "STATUS").write_text("running")
    assert run_here(launch, {}) == 3
    lock = take(launch.lock)
    assert lock is not None, "nobody holds it any more"
    os.close(lock)
