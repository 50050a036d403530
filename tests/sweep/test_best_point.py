"""The best of the values that a sweep varies: its score, over seeds and last stages."""

import json
import math
from pathlib import Path

import pytest

from rlfactory.sweep.best_point import best_lines, objective, scores_of
from rlfactory.sweep.table import Column, Job
from rlfactory.utils.data_files import FileError


def column(better: str = "higher") -> Column:
    return Column("s", "S", "eval/a", better)  # type: ignore[arg-type]


def job(name: str, seed: int = 0, after: str | None = None, **axes: object) -> Job:
    return Job(name, "r", name, [], {**axes, "seed": seed}, after)


def leave(run: Path, score: float, status: str = "done") -> None:
    run.mkdir()
    (run / "STATUS").write_text(status)
    (run / "metrics.jsonl").write_text(json.dumps({"iteration": 0, "eval/a/mean": score}) + "\n")


def test_a_score_is_the_mean_of_the_last_stage_over_seeds(tmp_path: Path) -> None:
    first = [job(f"one-s{s}", s, lr=0.5, stage=1) for s in (0, 1)]
    jobs = [*first, *(job(f"two-s{s}", s, f"one-s{s}", lr=0.5, stage=2) for s in (0, 1))]
    for one, score in zip(jobs, (9, 9, 1, 2), strict=True):
        leave(tmp_path / one.folder, score)
    assert scores_of(jobs, column(), tmp_path) == {"r": {(("lr", 0.5),): 1.5}}
    (tmp_path / "two-s1" / "STATUS").write_text("failed")
    assert math.isnan(scores_of(jobs, column(), tmp_path)["r"][(("lr", 0.5),)])


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
    jobs = [job(f"r-{i}", lr=float(i)) for i in range(3)]
    for one, score in zip(jobs, (1, 2, 9), strict=True):
        leave(tmp_path / one.folder, score, "failed" if score == 9 else "done")
    (line,) = best_lines(jobs, column(better), tmp_path)
    assert line == f"best of r: S {best + 1:.3f}: lr={best}.0"


def test_where_nothing_varies_or_nothing_is_better_there_is_no_best(tmp_path: Path) -> None:
    jobs = [job(f"r-{i}", i) for i in range(2)]
    for one in jobs:
        leave(tmp_path / one.folder, 1)
    assert [*best_lines(jobs, column(), tmp_path)] == []
    varied = [job(f"r-{i}", lr=i) for i in range(2)]
    assert [*best_lines(varied, column("neither"), tmp_path)] == []
    assert len([*best_lines(varied, column(), tmp_path)]) == 1
