"""Searches: the same trials again, their scores, and the best one."""

import json
import math
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlfactory.sweep.search import Search, Space, objective, trial_of
from rlfactory.sweep.table import Column, Job
from rlfactory.utils.data_files import FileError

Drive = Callable[..., "subprocess.Popen[str]"]
FOLDER = Path("outputs/sweeps/small-tiny")
pytest.importorskip("optuna")
WORDS = ["rows=v-grpo-one", "seed=0", "search.optimizer.lr=log(1e-6,1e-2)", "trials=4"]


def lrs(folder: Path) -> list[Any]:
    jobs = json.loads((folder / "sweep.json").read_text())["jobs"]
    return [job["axes"]["optimizer.lr"] for job in jobs]


def searched(drive: Drive, *words: str) -> str:
    process = drive(*WORDS, *words)
    out, err = process.communicate(timeout=40)
    assert process.returncode == 0, out + err
    return out


@pytest.mark.slow
def test_random_trials_are_known_beforehand(drive: Drive, tmp_path: Path) -> None:
    out = searched(drive)
    assert "4 trials a row over optimizer.lr, random, by Shapes" in out
    found = lrs(tmp_path / FOLDER)
    assert len({*found}) == 4
    assert (tmp_path / FOLDER / "v-grpo-one-t3-s0" / "STATUS").read_text() == "done"
    assert "best of V-GRPO, one: trial " in out
    searched(drive, "trials=5", "sweep_dir=other")
    assert lrs(tmp_path / "other")[:4] == found


@pytest.mark.slow
def test_optuna_asks_the_same_again_after_a_kill(drive: Drive, tmp_path: Path) -> None:
    searched(drive, "hydra/sweeper=optuna", "trials=7", "sweep_dir=whole")
    process = drive(*WORDS, "hydra/sweeper=optuna", "trials=7", "sweep_dir=torn", pace=0.05)
    time.sleep(2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    out = searched(drive, "hydra/sweeper=optuna", "trials=7", "sweep_dir=torn")
    assert lrs(tmp_path / "torn") == lrs(tmp_path / "whole")
    assert len(lrs(tmp_path / "torn")) == 7
    assert out.splitlines()[-1].startswith("best of V-GRPO, one: trial ")


def search(folder: Path, better: str = "higher") -> Search:
    column = Column("s", "S", "eval/a", better)  # type: ignore[arg-type]
    return Search("random", {"lr": Space("log", (1e-4, 1e-2))}, 3, column, folder, 1)


def leave(run: Path, score: float, status: str = "done") -> None:
    run.mkdir()
    (run / "STATUS").write_text(status)
    (run / "metrics.jsonl").write_text(json.dumps({"iteration": 0, "eval/a/mean": score}) + "\n")


def test_a_trial_is_the_mean_of_its_last_stages_over_seeds(tmp_path: Path) -> None:
    grid = [Job(f"r-stage-{i}-s{s}", "r", "", [f"seed={s}"]) for i in (1, 2) for s in (0, 1)]
    grid = [
        Job(j.name, "r", j.name, j.overrides, {"seed": i % 2}, None if i < 2 else grid[i - 2].name)
        for i, j in enumerate(grid)
    ]
    jobs = [trial_of(job, 0, {"lr": 0.5}) for job in grid]
    assert jobs[0].name == jobs[2].after == "r-stage-1-t0-s0"
    assert jobs[0].overrides == ["seed=0", "lr=0.5"]
    for job, score in zip(jobs, (9, 9, 1, 2), strict=True):
        leave(tmp_path / job.folder, score)
    (trial,) = search(tmp_path).trials_of(jobs)
    assert (trial.row, trial.number, trial.values, trial.score) == ("r", 0, {"lr": 0.5}, 1.5)
    (tmp_path / jobs[3].folder / "STATUS").write_text("failed")
    assert str(search(tmp_path).trials_of(jobs)[0].score) == "nan"


LINES = """
{"iteration": 0, "eval/a/mean": 0.1}
{"iteration": 1, "reward/a/mean": 5, "loss": 1}
{"iteration": 2, "reward/a/mean": 9, "loss": null}
{"iteration": 3, "reward/a/mean": 7, "loss": 4}
{"iteration": 3, "eval/a/mean": 0.6}
{"iteration": 4, "eval/a/me
""".strip()


@pytest.mark.parametrize(
    ("measure", "window", "expected"),
    [
        ("eval/a", 1, 0.6),
        ("before/a", 1, 0.1),
        ("last/reward/a/mean", 1, 7),
        ("last/reward/a/mean", 2, 8),
        ("last/loss", 5, 2.5),
        ("max/reward/a/mean", 1, 9),
        ("iterations", 1, 3),
        ("eval/b", 1, math.nan),
        ("", 1, math.nan),
    ],
)
def test_an_objective_is_the_columns_measure(
    tmp_path: Path, measure: str, window: int, expected: float
) -> None:
    (tmp_path / "metrics.jsonl").write_text(LINES)
    found = objective(tmp_path, Column("c", "C", measure, window=window))
    assert found == pytest.approx(expected, nan_ok=True)


def test_an_objective_is_scaled(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(LINES)
    assert objective(tmp_path, Column("c", "C", "eval/a", scale=100.0)) == pytest.approx(60)
    assert math.isnan(objective(tmp_path / "none", Column("c", "C", "eval/a")))


def test_damaged_metrics_give_no_objective(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"iteration": 1, "eval/a": 0.5}\n\xff\n')
    with pytest.raises(FileError, match="line 2 is not UTF-8"):
        objective(tmp_path, Column("c", "C", "eval/a"))


@pytest.mark.parametrize(("better", "best"), [("higher", 1), ("lower", 0)])
def test_the_best_is_as_the_column_says(tmp_path: Path, better: str, best: int) -> None:
    job = Job("r-s0", "r", "r-s0", [], {"seed": 0})
    jobs = [trial_of(job, i, {"lr": float(i)}) for i in range(3)]
    for one, score in zip(jobs, (1, 2, 9), strict=True):
        leave(tmp_path / one.folder, score, "failed" if score == 9 else "done")
    (line,) = search(tmp_path, better).best_lines(jobs)
    assert line == f"best of r: trial {best}, S {best + 1:.3f}: lr={best}.0"


def test_both_ends_are_checked(tmp_path: Path) -> None:
    low, high = search(tmp_path).probes([Job("r-s0", "r", "r-s0", ["lr=1"])])
    assert low.overrides == ["lr=0.0001"]
    assert high.overrides == ["lr=0.01"]
