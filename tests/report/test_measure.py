import numpy as np
import pytest

from rlfactory.report.measure import before, best_iteration, measured, metrics_of
from rlfactory.report.read import Run, Series
from rlfactory.sweep.table import Column


def series(*values: float, every: int = 1, start: int = 0) -> Series:
    return np.arange(start, start + every * len(values), every) * 1.0, np.array(values)


RUN = Run(
    path=None,  # type: ignore[arg-type]
    status="done",
    config={},
    iterations=40,
    series={
        "eval/a/mean": series(0.1, 0.9, 0.5, every=20),
        "eval/diversity": series(0.3, 0.2, every=40),
        "reward/a/mean": series(*range(40), start=1),
    },
)


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("eval/a", 0.5),
        ("before/a", 0.1),
        ("eval/diversity", 0.2),
        ("last/reward/a/mean", 39.0),
        ("max/reward/a/mean", 39.0),
        ("max/eval/a/mean", 0.9),
        ("iterations", 40.0),
        ("eval/b", None),
        ("before/reward/a/mean", None),
        ("last/b", None),
        ("", None),
    ],
)
def test_what_a_column_measures(measure: str, expected: float | None) -> None:
    assert measured(RUN, Column("c", "C", measure)) == expected


def test_a_window_is_a_mean_over_the_last_lines() -> None:
    column = Column("c", "C", "last/reward/a/mean", window=4)
    assert measured(RUN, column) == pytest.approx(37.5)


def test_the_best_evaluation_is_by_the_first_column_and_never_the_one_before_training() -> None:
    a, diversity = Column("a", "A", "eval/a"), Column("d", "D", "eval/diversity", "lower")
    assert best_iteration(RUN, [Column("n", "N", "iterations"), a, diversity]) == 20
    assert best_iteration(RUN, [Column("a", "A", "eval/a", "lower")]) == 40
    assert best_iteration(RUN, [Column("a", "A", "eval/a", "neither")]) is None
    assert measured(RUN, a, 20) == 0.9
    assert measured(RUN, diversity, 20) is None


def test_only_metrics_of_training_have_to_be_asked_for() -> None:
    measures = ["eval/a", "last/grad/norm", "max/kl/old", "iterations", ""]
    assert metrics_of(Column(m, m, m) for m in measures) == ["grad/norm", "kl/old"]


def test_before_training_there_is_only_what_was_evaluated() -> None:
    assert before(Column("a", "A", "eval/a")).measure == "before/a"
    assert before(Column("a", "A", "last/a")).measure == ""
