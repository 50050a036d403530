"""A job as a process: its words, its environment, and that it ends with who began it."""

import os
import shlex
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rlfactory.config.overrides import compose
from rlfactory.config.problems import PlanError
from rlfactory.sweep import process
from rlfactory.sweep.process import (
    HydraLauncher,
    StopRequest,
    command_of,
    cores,
    environment,
    launch_of,
    require_launcher,
    run_here,
    run_number,
    words_of,
)
from rlfactory.sweep.sweep_arguments import LAUNCHERS, read_request
from rlfactory.sweep.sweep_folder import take
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


Drive = Callable[..., "subprocess.Popen[str]"]
FOLDER = Path("outputs/sweeps/small-tiny")


def is_installed(name: str) -> bool:
    try:
        require_launcher(name)
    except PlanError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", ["joblib", "submitit_local"])
def test_for_real(drive: Drive, tmp_path: Path, name: str) -> None:
    if not is_installed(name):
        pytest.skip(f"{LAUNCHERS[name]} is not installed")
    (tmp_path / "fail-v-grpo-one-s1").touch()
    process = drive(f"hydra/launcher={name}", "jobs=2", "gpus=0,1")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert "v-grpo-one-s1          failed       iteration 2" in out, err
    assert "two-stages-stage-2-s1  done         iteration 8" in out
    (tmp_path / "fail-v-grpo-one-s1").unlink()
    process = drive(f"hydra/launcher={name}", "jobs=2")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    runs = [*(tmp_path / FOLDER).glob("*/finished")]
    assert len(runs) == 6
    assert {len(run.read_text().splitlines()) for run in runs} == {1}


@pytest.mark.parametrize("name", ["joblib", "submitit_slurm", "ray"])
def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(process, "is_installed", lambda package: False)
    with pytest.raises(PlanError, match=f"{name} is not installed; type pip install hydra-"):
        require_launcher(name)
    require_launcher("pool")


@pytest.mark.parametrize(
    ("name", "word", "said"),
    [
        ("joblib", "foo=1", "hydra.launcher.foo: there is no such key; known here: .*n_jobs"),
        ("joblib", "n_jobs=many", "hydra.launcher.n_jobs: .*many"),
        ("pool", "n_jobs=2", "hydra.launcher.n_jobs: there is no such key; pool reads none"),
    ],
)
def test_words_that_set_up_a_launcher_are_checked_before_jobs(
    name: str, word: str, said: str
) -> None:
    if not is_installed(name):
        pytest.skip(f"{LAUNCHERS[name]} is not installed")
    with pytest.raises(PlanError, match=said):
        require_launcher(name, [f"hydra.launcher.{word}"])


def test_slurm_is_refused_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "is_installed", lambda package: True)
    monkeypatch.setattr("shutil.which", lambda program: None)
    with pytest.raises(PlanError, match="no srun here") as caught:
        require_launcher("submitit_slurm")
    assert caught.value.problems[0].fix == "hydra/launcher=submitit_local"


class Told:
    """Remembers what became of jobs."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}

    def change(self, name: str, state: str) -> None:
        self.states[name] = state

    def refresh(self) -> None:
        pass


def test_waves_and_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    waves: list[list[str]] = []

    def launch(name: str, words: list[str], folder: Path, work: Any, count: int) -> list[Any]:
        assert words == ["hydra.launcher.array_parallelism=3", "hydra.launcher.partition=x"]
        wave = work.args[0]
        waves.append([one.job.name for one in wave])
        for one in wave:
            one.run.mkdir()
            (one.run / "STATUS").write_text("failed" if one.job.name == "c" else "done")
        return []

    monkeypatch.setattr(process, "run_with_hydra_launcher", launch)
    jobs = [Job("a", "r", "a", []), Job("b", "r", "b", [], {}, "a"), Job("c", "r", "c", [])]
    jobs += [Job("d", "r", "d", [], {}, "c")]
    request = read_request(["x", "hydra/launcher=submitit_slurm", "hydra.launcher.partition=x"])
    told = Told()
    run = HydraLauncher(request, tmp_path, [{}] * 3, told, StopRequest())
    run([launch_of(job, tmp_path) for job in jobs])
    assert waves == [["a", "c"], ["b"]]
    assert told.states == {"a": "done", "c": "failed", "b": "done", "d": "blocked"}


def test_the_work_of_a_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = []
    monkeypatch.setattr(process, "run_here", lambda one, env: seen.append((one.job.name, env)))
    launches = [launch_of(Job(name, "r", name, []), tmp_path) for name in "abc"]
    run_number(launches, [{"G": "0"}, {"G": "1"}], 2)
    assert seen == [("c", {"G": "0"})]
    assert find_spec("hydra") is not None
