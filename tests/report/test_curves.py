from pathlib import Path

import numpy as np
import pytest

from rlfactory.report.curves import MOST_POINTS, averaged, curves, thinned
from rlfactory.report.read import RunRecord, Series
from rlfactory.report.run_groups import Group
from rlfactory.report.statistics import bootstrap_interval, mean_interval
from rlfactory.run.scores import Scores
from rlfactory.sweep.table import Column


def run(**series: Series) -> RunRecord:
    named = {name.replace("__", "/"): found for name, found in series.items()}
    return RunRecord(Path("r"), "done", {}, named, 3)


def series(x: list[int], y: list[float]) -> Series:
    return np.array(x, dtype=float), np.array(y)


def group(*runs: RunRecord, **more: object) -> Group:
    return Group("row", [*runs], **more)  # type: ignore[arg-type]


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


def test_columns_that_read_one_metric_share_a_panel(measured_run: RunRecord) -> None:
    group = Group("row", [measured_run])
    last = Column("last", "last", "last/reward/a/mean")
    window = Column("end", "end", "last/reward/a/mean", window=16)
    other = Column("a", "A", "eval/a")
    found = [(curve.metric, curve.label) for curve in curves([group], [last, window, other])]
    assert found == [("reward/a/mean", "a in training"), ("eval/a/mean", "A")]


def test_the_evaluations_of_one_run_have_intervals_over_prompts(
    tmp_path: Path, measured_run: RunRecord
) -> None:
    prompts = [f"prompt {i}" for i in range(64)]
    values = np.random.default_rng(0).random(64)
    Scores(prompts, {"a": values}).save(tmp_path / "evaluations" / "000020.json")
    one = averaged([measured_run], "eval/a/mean", "row", scale=2)
    assert one is not None
    low, high = bootstrap_interval(values, resamples=1000)
    assert one.mean == [0.2, 1.8, 1.0]
    assert one.low == [0.2, 2 * low, 1.0]  # the files of the others are missing
    assert one.high == [0.2, 2 * high, 1.0]
    training = averaged([measured_run], "reward/a/mean", "row")
    assert training is not None
    assert training.low == training.mean
    two = averaged([measured_run] * 2, "eval/a/mean", "row")
    assert two is not None
    assert two.low == two.mean  # over runs, which are equal
