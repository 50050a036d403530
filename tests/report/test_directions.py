from pathlib import Path

import numpy as np
import pytest

from rlfactory.report.directions import declared, resolved
from rlfactory.report.read import RunRecord
from rlfactory.sweep.table import Column

ONCE = (np.array([0.0]), np.array([1.0]))


def run(*scores: str, **better: str) -> RunRecord:
    series = {f"eval/{score}/mean": ONCE for score in scores}
    return RunRecord(Path("r"), "done", {}, series, better=better)


def test_a_score_is_judged_as_all_runs_declare_it() -> None:
    first, second = run("a", "b", a="higher", b="lower"), run("a", "b", a="higher", b="higher")
    assert declared("a", [first, second]) == "higher"
    assert declared("b", [first]) == "lower"
    assert declared("b", [first, second]) == "neither"
    assert declared("c", [first]) == "neither"


def test_of_earlier_runs_only_the_score_that_trains_is_judged() -> None:
    assert declared("a", [run("a", "b")]) == "higher"
    assert declared("b", [run("a", "b")]) == "neither"


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
    runs = [run("a", "b", a="higher", b="lower"), run("other", other="higher")]
    assert resolved(column, runs).better == better


def test_a_column_that_says_it_is_kept() -> None:
    column = Column("x", "X", "eval/b", "higher")
    assert resolved(column, [run("a", "b", a="higher", b="lower")]) == column
