"""Statistics: their definitions, their properties, and the numbers of scipy and rliable.

`golden_rliable.json` says where its numbers are from.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rlfactory.report.statistics import (
    CONFIDENCE,
    bootstrap_interval,
    improvement_interval,
    interquartile_interval,
    interquartile_mean,
    mean_interval,
    paired_change,
    probability_of_improvement,
    stratified_bootstrap,
    t_quantile,
)

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "golden_rliable.json").read_text(encoding="utf-8")
)
SEEDS = range(20)


@pytest.mark.parametrize("kind", ["normal", "coin", "skewed"])
def test_it_covers_the_true_mean_as_often_as_it_says(kind: str) -> None:
    rng = np.random.default_rng(0)
    draw = {
        "normal": lambda: rng.normal(0.5, 2.0, 128),
        "coin": lambda: rng.random(128) < 0.5,
        "skewed": lambda: rng.exponential(0.5, 128),
    }[kind]
    trials = 400
    hits = 0
    for _ in range(trials):
        low, high = bootstrap_interval(draw(), resamples=500)
        hits += low <= 0.5 <= high
    # three standard errors of the count, and one point for the bootstrap's own error at N = 128
    slack = 3 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / trials) + 0.01
    assert abs(hits / trials - CONFIDENCE) < slack


def test_it_agrees_with_scipy() -> None:
    data = np.random.default_rng(1).exponential(size=200)
    theirs = stats.bootstrap(
        (data,), np.mean, method="percentile", n_resamples=20000, rng=np.random.default_rng(2)
    ).confidence_interval
    ours = bootstrap_interval(data, resamples=20000)
    width = theirs.high - theirs.low
    np.testing.assert_allclose(ours, (theirs.low, theirs.high), atol=0.03 * width)


def test_pairs_agree_with_scipy() -> None:
    rng = np.random.default_rng(3)
    before = rng.random(150)
    after = before + rng.normal(0.1, 0.2, 150)
    theirs = stats.bootstrap(
        (before, after),
        lambda x, y, axis: (y - x).mean(axis),
        paired=True,
        method="percentile",
        n_resamples=20000,
        rng=rng,
    ).confidence_interval
    width = theirs.high - theirs.low
    ours = paired_change(before, after, resamples=20000)
    np.testing.assert_allclose((ours.low, ours.high), (theirs.low, theirs.high), atol=0.03 * width)


def test_pairs_are_tighter_than_two_samples() -> None:
    rng = np.random.default_rng(4)
    before = rng.normal(0, 1, 200)
    after = before + rng.normal(0.1, 0.1, 200)
    change = paired_change(before, after)
    low, high = change.low, change.high
    ends = [bootstrap_interval(x) for x in (before, after)]
    unpaired = math.hypot(*(b - a for a, b in ends))
    assert high - low < 0.3 * unpaired
    assert low > 0


def test_a_constant_is_certain() -> None:
    low, high = bootstrap_interval([0.3] * 50)
    assert low == high == pytest.approx(0.3)


def test_fewer_values_are_wider() -> None:
    data = np.random.default_rng(5).random(400)
    few, many = (np.ptp(bootstrap_interval(values)) for values in (data[:50], data))
    assert few > 2 * many > 0


def test_shift_and_scale_carry_over() -> None:
    data = np.random.default_rng(6).random(100)
    low, high = bootstrap_interval(data)
    assert bootstrap_interval(5 + 2 * data) == pytest.approx((5 + 2 * low, 5 + 2 * high))
    assert bootstrap_interval(data) == (low, high)


def test_chunks_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(7).random(100)
    whole = bootstrap_interval(data, resamples=1001)
    monkeypatch.setattr("rlfactory.report.statistics._MAX_DIFFERENCES", 70_000)
    assert bootstrap_interval(data, resamples=1001) == whole


def test_incomplete_pairs_are_dropped() -> None:
    nan = math.nan
    change = paired_change([0.0, nan, 1.0, 0.0, 9.0], [1.0, 5.0, 1.0, 1.0, nan])
    assert change == paired_change([0.0, 1.0, 0.0], [1.0, 1.0, 1.0])
    assert (change.before, change.after, change.count) == (pytest.approx(1 / 3), 1.0, 3)
    assert change.difference == pytest.approx(2 / 3)
    assert change.low <= change.difference <= change.high


def test_too_few_to_say() -> None:
    assert all(map(math.isnan, bootstrap_interval([])))
    assert all(map(math.isnan, bootstrap_interval([1.0, math.nan])))
    empty = paired_change([math.nan], [1.0])
    assert empty.count == 0
    assert math.isnan(empty.difference)
    assert not empty.is_clear


def test_unequal_lengths_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="equal"):
        paired_change([1.0, 2.0], [1.0])


def sample(seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return np.round(rng.normal(size=rng.integers(2, 15)), 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_interval_of_a_mean_is_students(seed: int) -> None:
    x = sample(seed)
    expected = stats.t.interval(0.95, len(x) - 1, x.mean(), stats.sem(x))
    assert mean_interval(x) == pytest.approx(expected)


def test_one_run_has_no_interval() -> None:
    assert mean_interval([0.5]) is None
    assert interquartile_interval([0.5]) is None
    assert improvement_interval([[1.0]], [[0.0]]) is None


def test_two_runs_are_known_badly() -> None:
    assert t_quantile(1) == pytest.approx(12.706, abs=1e-3)
    assert t_quantile(10**6) == pytest.approx(1.96, abs=1e-3)


def test_an_interval_of_a_mean_holds_it_19_times_of_20() -> None:
    rng = np.random.default_rng(0)
    found = [mean_interval(rng.normal(3.0, 2.0, size=3)) for _ in range(3000)]
    held = np.mean([low <= 3.0 <= high for low, high in filter(None, found)])
    assert held == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_interquartile_mean_is_the_trimmed_one(seed: int) -> None:
    x = sample(seed)
    assert interquartile_mean(x) == pytest.approx(stats.trim_mean(x, 0.25))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_interquartile_mean_moves_with_its_values_and_minds_no_order(seed: int) -> None:
    x = sample(seed)
    shuffled = np.random.default_rng(seed).permutation(x)
    assert interquartile_mean(3 * shuffled - 1) == pytest.approx(3 * interquartile_mean(x) - 1)


def test_an_interquartile_mean_minds_no_outlier() -> None:
    assert interquartile_mean([1, 2, 3, 1e9]) == interquartile_mean([-1e9, 2, 3, 4]) == 2.5


def test_the_golden_numbers() -> None:
    x, y = GOLDEN["x"], GOLDEN["y"]
    assert [interquartile_mean(task) for task in x] == pytest.approx(GOLDEN["iqm"])
    assert interquartile_mean(np.ravel(x)) == pytest.approx(GOLDEN["iqm_all"])
    assert probability_of_improvement(x, y) == pytest.approx(GOLDEN["improvement"])
    each = [probability_of_improvement([a], [b]) for a, b in zip(x, y, strict=True)]
    assert each == pytest.approx(GOLDEN["improvement_of_each"])


def test_the_golden_intervals() -> None:
    x, y = GOLDEN["x"], GOLDEN["y"]
    found = interquartile_interval(x[0], resamples=20000)
    assert found == pytest.approx(GOLDEN["iqm_interval"], abs=0.005)
    found = improvement_interval(x, y, resamples=20000)
    assert found == pytest.approx(GOLDEN["improvement_interval"], abs=0.008)


@pytest.mark.parametrize("seed", SEEDS)
def test_either_is_better_than_the_other_or_they_are_even(seed: int) -> None:
    x, y = sample(seed), sample(seed + 100)
    there, back = probability_of_improvement([x], [y]), probability_of_improvement([y], [x])
    assert there + back == pytest.approx(1.0)
    assert probability_of_improvement([x], [x]) == 0.5
    assert probability_of_improvement([x + 100], [y]) == 1.0


def test_strata_are_resampled_each_by_itself() -> None:
    # constant strata give the same statistic always, however different they are from each other
    found = stratified_bootstrap([[1.0, 1.0], [9.0] * 5], lambda s: s[0].mean(-1) + s[1].mean(-1))
    assert found == (10.0, 10.0)


def test_a_bootstrap_is_the_same_each_time_and_in_pieces() -> None:
    x = np.random.default_rng(0).normal(size=1500)
    first, again = (interquartile_interval(x, resamples=200) for _ in range(2))
    assert first == again
    assert first is not None
    assert first[0] < interquartile_mean(x) < first[1]
