"""A column's number from a run's metrics."""

import math
from pathlib import Path

import pytest

from rlfactory.sweep.objective import objective
from rlfactory.sweep.table import Column

LINES = """
{"iteration": 0, "eval/a/mean": 0.1}
{"iteration": 1, "reward/a/mean": 5, "loss": 1}
{"iteration": 2, "reward/a/mean": 9, "loss": null}
{"iteration": 3, "reward/a/mean": 7, "loss": 4}
damaged
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
def test_measures(tmp_path: Path, measure: str, window: int, expected: float) -> None:
    (tmp_path / "metrics.jsonl").write_text(LINES)
    found = objective(tmp_path, Column("c", "C", measure, window=window))
    assert found == pytest.approx(expected, nan_ok=True)


def test_scaled(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(LINES)
    assert objective(tmp_path, Column("c", "C", "eval/a", scale=100.0)) == pytest.approx(60)
    assert math.isnan(objective(tmp_path / "none", Column("c", "C", "eval/a")))
