from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlfactory.config.overrides import plan_from_words
from rlfactory.report.curves import (
    MOST_POINTS,
    averaged,
    before,
    curves,
    declared,
    mean_of_scores,
    measured,
    metrics_of,
    planned_passes,
    resolved,
    thinned,
)
from rlfactory.report.group import Group, Member
from rlfactory.report.read import RunRecord, Series
from rlfactory.report.statistics import bootstrap_interval, mean_interval
from rlfactory.run.scores import Scores
from rlfactory.sweep.table import Column


def series_metrics(*values: float, every: int = 1, start: int = 0) -> Series:
    return np.arange(start, start + every * len(values), every) * 1.0, np.array(values)


RUN = RunRecord(
    path=None,  # type: ignore[arg-type]
    status="done",
    config={},
    iterations=40,
    series={
        "eval/a/mean": series_metrics(0.1, 0.9, 0.5, every=20),
        "eval/diversity": series_metrics(0.3, 0.2, every=40),
        "reward/a/mean": series_metrics(*range(40), start=1),
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


def test_only_metrics_of_training_have_to_be_asked_for() -> None:
    measures = ["eval/a", "last/grad/norm", "max/kl/old", "iterations", ""]
    assert metrics_of(Column(m, m, m) for m in measures) == ["grad/norm", "kl/old"]


def test_before_training_there_is_only_what_was_evaluated() -> None:
    assert before(Column("a", "A", "eval/a")).measure == "before/a"
    assert before(Column("a", "A", "last/a")).measure == ""


def run(**series: Series) -> RunRecord:
    named = {name.replace("__", "/"): found for name, found in series.items()}
    return RunRecord(Path("r"), "done", {}, named, 3)


def series(x: list[int], y: list[float]) -> Series:
    return np.array(x, dtype=float), np.array(y)


def group(*runs: RunRecord, **more: object) -> Group:
    members = [Member(r.path, r, "done") for r in runs]
    return Group("row", members, **more)  # type: ignore[arg-type]


def test_a_curve_is_a_mean_with_its_interval_where_all_runs_were_measured() -> None:
    runs = [run(a=series([0, 1, 2], [1, 2, 3])), run(a=series([0, 2, 3], [2, 7, 9])), run()]
    curve = averaged(runs, "a", "row", scale=10.0)
    assert curve is not None
    assert curve.x == [0, 2]
    assert curve.mean == [15, 50]
    assert (curve.low[1], curve.high[1]) == pytest.approx(mean_interval([30, 70]))


def test_one_run_has_no_band() -> None:
    curve = averaged([run(a=series([0, 1], [1, 2]))], "a", "row")
    assert curve is not None
    assert curve.low == curve.mean == curve.high == [1, 2]


def test_a_point_is_no_curve() -> None:
    assert averaged([run(a=series([0], [1]))], "a", "row") is None
    assert averaged([run()], "a", "row") is None


def test_a_long_curve_is_thinned_to_values_that_were_measured() -> None:
    x = np.arange(1001.0)
    few = thinned(x)
    assert len(few) <= MOST_POINTS
    assert few[-1] == 1000
    assert {*few} <= {*x}
    assert len({*np.diff(few)}) == 1
    assert thinned(x[:50]).tolist() == x[:50].tolist()


def test_columns_come_first_with_the_papers_value_then_rewards_and_the_kl() -> None:
    found = run(
        eval__a__mean=series([0, 2], [0.1, 0.5]),
        reward__a__mean=series([1, 2], [0.2, 0.4]),
        kl__reference=series([1, 2], [0.0, 0.1]),
        grad__norm=series([1, 2], [0.0, 0.1]),
    )
    columns = [Column("a", "A", "eval/a", scale=100), Column("b", "B", "before/a")]
    drawn = curves([group(found, claimed={"a": 60.0})], columns)
    assert [c.metric for c in drawn] == ["eval/a/mean", "reward/a/mean", "kl/reference"]
    assert (drawn[0].label, drawn[0].paper, drawn[0].mean) == ("A", 60.0, [10.0, 50.0])
    assert drawn[1].paper is None


def test_what_a_column_draws_is_not_drawn_again() -> None:
    found = run(reward__a__mean=series([1, 2], [0.2, 0.4]))
    drawn = curves([group(found)], [Column("a", "A", "last/reward/a/mean")])
    assert [c.label for c in drawn] == ["A"]


def test_what_was_not_trained_has_no_curve() -> None:
    found = run(eval__a__mean=series([0, 2], [0.1, 0.5]))
    assert curves([group(found, untrained=True)], [Column("a", "A", "eval/a")]) == []


def test_columns_that_read_one_metric_share_a_panel(tmp_path: Path) -> None:
    group = Group("row", [Member(tmp_path, replace(RUN, path=tmp_path), "done")])
    last = Column("last", "last", "last/reward/a/mean")
    window = Column("end", "end", "last/reward/a/mean", window=16)
    other = Column("a", "A", "eval/a")
    found = [(curve.metric, curve.label) for curve in curves([group], [last, window, other])]
    assert found == [("reward/a/mean", "a in training"), ("eval/a/mean", "A")]


def test_the_evaluations_of_one_run_have_intervals_over_prompts(tmp_path: Path) -> None:
    prompts = [f"prompt {i}" for i in range(64)]
    values = np.random.default_rng(0).random(64)
    Scores(prompts, {"a": values}).save(tmp_path / "evaluations" / "000020.json")
    run = replace(RUN, path=tmp_path)
    one = averaged([run], "eval/a/mean", "row", scale=2)
    assert one is not None
    low, high = bootstrap_interval(values, resamples=1000)
    assert one.mean == [0.2, 1.8, 1.0]
    assert one.low == [0.2, 2 * low, 1.0]  # the files of the others are missing
    assert one.high == [0.2, 2 * high, 1.0]
    training = averaged([run], "reward/a/mean", "row")
    assert training is not None
    assert training.low == training.mean
    two = averaged([run, run], "eval/a/mean", "row")
    assert two is not None
    assert two.low == two.mean  # over runs, which are equal


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
    assert measured(DERIVED_RUN, column) == pytest.approx(2.5)
    assert measured(DERIVED_RUN, before(column)) == pytest.approx(1.0)


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
