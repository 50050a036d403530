from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlfactory.config.overrides import plan_from_words
from rlfactory.report.measure import (
    before,
    declared,
    mean_of_scores,
    measured,
    planned_passes,
    resolved,
)
from rlfactory.report.read import RunRecord
from rlfactory.sweep.table import Column


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
def test_what_a_column_measures(
    measure: str, expected: float | None, measured_run: RunRecord
) -> None:
    assert measured([measured_run], Column("c", "C", measure)) == expected


def test_a_window_is_a_mean_over_the_last_lines(measured_run: RunRecord) -> None:
    column = Column("c", "C", "last/reward/a/mean", window=4)
    assert measured([measured_run], column) == pytest.approx(37.5)


def test_before_training_there_is_only_what_was_evaluated() -> None:
    assert before(Column("a", "A", "eval/a")).measure == "before/a"
    assert before(Column("a", "A", "last/a")).measure == ""


AT = np.array([0.0, 8.0])
SERIES = {
    "eval/a/mean": (AT, np.array([1.0, 2.0])),
    "eval/b/mean": (AT, np.array([10.0, 30.0])),
}
DERIVED_RUN = RunRecord(Path("r"), "done", {}, SERIES)


def test_a_column_is_the_plain_mean_of_scores() -> None:
    assert mean_of_scores(DERIVED_RUN, "a+0.1*b") == pytest.approx((2 + 3) / 2)
    assert mean_of_scores(DERIVED_RUN, "a+0.1*b", is_before=True) == pytest.approx((1 + 1) / 2)
    assert mean_of_scores(DERIVED_RUN, "a+c") is None


def test_a_model_before_training_has_the_mean_of_its_first_scores() -> None:
    column = Column("m", "M", "mean/a+0.1*b")
    assert measured([DERIVED_RUN], column) == pytest.approx(2.5)
    assert measured([DERIVED_RUN], before(column)) == pytest.approx(1.0)


def planned(*words: str) -> RunRecord:
    return replace(DERIVED_RUN, config=plan_from_words(*words).config)


def test_passes_are_the_plans_own() -> None:
    run = planned("algo=vgrpo", "model=tiny_sd3")  # 10 to sample, 2 to compare, 4 to learn
    found = [planned_passes([run], name) for name in ("rollout", "train", "all")]
    assert found == [12, 4, 16]
    assert planned_passes([DERIVED_RUN], "all") is None


def test_passes_of_stages_are_a_mean_over_optimizer_steps() -> None:
    short = planned("algo=vgrpo", "iterations=10", "updates_per_iteration=2")  # 16
    long = planned("algo=nft", "iterations=60", "updates_per_iteration=1")  # 18
    assert planned_passes([short, long], "all") == pytest.approx((20 * 16 + 60 * 18) / 80)


ONCE = (np.array([0.0]), np.array([1.0]))


def scored_run(*scores: str, **better: str) -> RunRecord:
    series = {f"eval/{score}/mean": ONCE for score in scores}
    return RunRecord(Path("r"), "done", {}, series, better=better)


def test_a_score_is_judged_as_all_runs_declare_it() -> None:
    first, second = (
        scored_run("a", "b", a="higher", b="lower"),
        scored_run("a", "b", a="higher", b="higher"),
    )
    assert declared("a", [first, second]) == "higher"
    assert declared("b", [first]) == "lower"
    assert declared("b", [first, second]) == "neither"
    assert declared("c", [first]) == "neither"


def test_of_earlier_runs_only_the_score_that_trains_is_judged() -> None:
    assert declared("a", [scored_run("a", "b")]) == "higher"
    assert declared("b", [scored_run("a", "b")]) == "neither"


@pytest.mark.parametrize(
    ("measure", "better"),
    [
        ("eval/a", "higher"),
        ("before/b", "lower"),
        ("last/reward/b/mean", "lower"),
        ("eval/unknown", "neither"),
        ("last/kl/reference", "neither"),
        ("iterations", "neither"),
        ("", "neither"),
    ],
)
def test_a_column_that_does_not_say_it_is_judged_as_its_score(measure: str, better: str) -> None:
    column = Column("x", "X", measure)
    runs = [scored_run("a", "b", a="higher", b="lower"), scored_run("other", other="higher")]
    assert resolved(column, runs).better == better


def test_a_column_that_says_it_is_kept() -> None:
    column = Column("x", "X", "eval/b", "higher")
    assert resolved(column, [scored_run("a", "b", a="higher", b="lower")]) == column
