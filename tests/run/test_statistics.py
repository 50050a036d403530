import math

import numpy as np
import pytest
import scipy.stats

from rlfactory.run.statistics import bootstrap_interval, paired_change, paired_interval


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("kind", ["normal", "coin", "skewed"])
def test_it_covers_the_true_mean_as_often_as_it_says(kind: str, confidence: float) -> None:
    rng = np.random.default_rng(0)
    draw = {
        "normal": lambda: rng.normal(0.5, 2.0, 128),
        "coin": lambda: rng.random(128) < 0.5,
        "skewed": lambda: rng.exponential(0.5, 128),
    }[kind]
    trials = 400
    hits = 0
    for i in range(trials):
        low, high = bootstrap_interval(draw(), confidence=confidence, resamples=500, seed=i)
        hits += low <= 0.5 <= high
    # three standard errors of the count, and one point for the bootstrap's own error at N = 128
    slack = 3 * math.sqrt(confidence * (1 - confidence) / trials) + 0.01
    assert abs(hits / trials - confidence) < slack


def test_it_agrees_with_scipy() -> None:
    data = np.random.default_rng(1).exponential(size=200)
    theirs = scipy.stats.bootstrap(
        (data,), np.mean, method="percentile", n_resamples=20000, rng=np.random.default_rng(2)
    ).confidence_interval
    ours = bootstrap_interval(data, resamples=20000)
    width = theirs.high - theirs.low
    np.testing.assert_allclose(ours, (theirs.low, theirs.high), atol=0.03 * width)


def test_pairs_agree_with_scipy() -> None:
    rng = np.random.default_rng(3)
    before = rng.random(150)
    after = before + rng.normal(0.1, 0.2, 150)
    theirs = scipy.stats.bootstrap(
        (before, after),
        lambda x, y, axis: (y - x).mean(axis),
        paired=True,
        method="percentile",
        n_resamples=20000,
        rng=rng,
    ).confidence_interval
    width = theirs.high - theirs.low
    ours = paired_interval(before, after, resamples=20000)
    np.testing.assert_allclose(ours, (theirs.low, theirs.high), atol=0.03 * width)


def test_pairs_are_tighter_than_two_samples() -> None:
    rng = np.random.default_rng(4)
    before = rng.normal(0, 1, 200)
    after = before + rng.normal(0.1, 0.1, 200)
    low, high = paired_interval(before, after)
    ends = [bootstrap_interval(x) for x in (before, after)]
    unpaired = math.hypot(*(b - a for a, b in ends))
    assert high - low < 0.3 * unpaired
    assert low > 0


def test_a_constant_is_certain() -> None:
    low, high = bootstrap_interval([0.3] * 50)
    assert low == high == pytest.approx(0.3)


def test_more_confidence_and_fewer_values_are_wider() -> None:
    data = np.random.default_rng(5).random(400)

    def width(values: np.ndarray, confidence: float) -> float:
        low, high = bootstrap_interval(values, confidence=confidence)
        return high - low

    assert width(data, 0.99) > width(data, 0.95) > width(data, 0.5) > 0
    assert width(data[:50], 0.95) > 2 * width(data, 0.95)


def test_shift_and_scale_carry_over() -> None:
    data = np.random.default_rng(6).random(100)
    low, high = bootstrap_interval(data)
    assert bootstrap_interval(5 + 2 * data) == pytest.approx((5 + 2 * low, 5 + 2 * high))
    assert bootstrap_interval(data) == (low, high)
    assert bootstrap_interval(data, seed=1) != (low, high)


def test_chunks_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(7).random(100)
    whole = bootstrap_interval(data, resamples=1001)
    monkeypatch.setattr("rlfactory.run.statistics._CHUNK", 700)
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
        paired_interval([1.0, 2.0], [1.0])
