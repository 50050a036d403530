"""Holm's correction against a worked example, and verdicts that follow from the interval alone."""

import math

import numpy as np
import pytest

from rlfactory.report.verdicts import (
    Evidence,
    MeanDifference,
    all_of,
    equal,
    greater,
    holm,
    interval,
    less,
    paired_difference,
    tails,
    verdict,
)


def test_holm_agrees_with_a_worked_example() -> None:
    # Holm (1979) by hand: 0.005 * 4, 0.01 * 3, 0.03 * 2, and 0.04 * 1 raised to the one before
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_is_between_no_correction_and_bonferronis() -> None:
    p = np.random.default_rng(0).uniform(size=20).tolist()
    adjusted = np.array(holm(p))
    assert np.all(np.array(p) <= adjusted)
    assert np.all(adjusted <= np.minimum(1.0, 20 * np.array(p)))
    assert np.all(np.diff(adjusted[np.argsort(p)]) >= 0)


def test_p_values_are_those_of_student() -> None:
    # 2.776 is the 97.5 % quantile of t with 4 degrees of freedom
    estimate = MeanDifference(2.776445, 1.0, 5, 64)
    assert tails(estimate, 0.0) == pytest.approx((0.025, 0.975), abs=1e-6)
    assert greater(estimate).p == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize("value", [-0.5, -0.2, -0.01, 0.0, 0.01, 0.2, 0.5])
def test_a_claim_alone_is_decided_where_its_interval_excludes_zero(value: float) -> None:
    estimate = MeanDifference(value, 0.1, 6, 64)
    low, high = interval(estimate) or (0.0, 0.0)
    found = verdict(greater(estimate), greater(estimate).p)
    assert found == ("agree" if low > 0 else "disagree" if high < 0 else "undecided")


@pytest.mark.parametrize("value", [-0.5, -0.06, 0.0, 0.03, 0.2])
def test_equality_is_decided_by_where_the_interval_lies_to_the_margin(value: float) -> None:
    estimate = MeanDifference(value, 0.02, 8, 64)
    low, high = interval(estimate) or (0.0, 0.0)
    evidence = equal(estimate, 0.1)
    inside, outside = low > -0.1 and high < 0.1, high < -0.1 or low > 0.1
    expected = "agree" if inside else "disagree" if outside else "undecided"
    assert verdict(evidence, evidence.p) == expected


def test_a_difference_that_is_not_clear_is_not_equality() -> None:
    evidence = equal(MeanDifference(0.0, 0.2, 8, 64), 0.1)
    assert verdict(evidence, evidence.p) == "undecided"


def test_not_inferior_allows_a_loss_within_the_margin() -> None:
    evidence = greater(MeanDifference(-0.05, 0.01, 8, 64), 0.1)
    assert verdict(evidence, evidence.p) == "agree"
    evidence = less(MeanDifference(0.25, 0.01, 8, 64), 0.1)
    assert verdict(evidence, evidence.p) == "disagree"


@pytest.mark.parametrize("value", [-0.4, -0.1, 0.0, 0.3])
def test_verdicts_are_symmetric(value: float) -> None:
    opposite = {"agree": "disagree", "disagree": "agree", "undecided": "undecided"}
    estimate, mirrored = MeanDifference(value, 0.1, 5, 64), MeanDifference(-value, 0.1, 5, 64)
    one, other = greater(estimate), greater(mirrored)
    assert one.p == pytest.approx(other.p)
    assert verdict(other, other.p) == opposite[verdict(one, one.p)]
    assert less(mirrored) == greater(estimate)
    assert equal(estimate, 0.2) == equal(mirrored, 0.2)


def test_without_any_spread_the_sign_decides() -> None:
    assert greater(MeanDifference(0.1, 0.0, 5, 64)) == Evidence(0.0, 1.0)
    same = greater(MeanDifference(0.0, 0.0, 5, 64))
    assert verdict(same, same.p) == "undecided"
    assert equal(MeanDifference(0.0, 0.0, 5, 64), 0.1) == Evidence(0.0, 1.0)


def test_an_order_needs_all_of_its_steps_and_fails_by_one() -> None:
    sure, wrong, open_ = Evidence(0.001, 0.999), Evidence(0.9999, 0.0001), Evidence(0.4, 0.6)
    assert all_of([sure, sure]) == Evidence(0.001, 1.0)
    assert all_of([sure, open_]) == Evidence(0.4, 1.0)
    assert all_of([sure, wrong, open_]) == Evidence(0.9999, pytest.approx(0.0003))


def test_false_verdicts_of_a_page_are_rare() -> None:
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(500):
        draws = rng.normal(size=(8, 5))
        errors = draws.std(1, ddof=1) / np.sqrt(5)
        pairs = zip(draws.mean(1), errors, strict=True)
        found = [greater(MeanDifference(float(v), float(e), 5, 1)) for v, e in pairs]
        adjusted = holm([evidence.p for evidence in found])
        verdicts = [verdict(e, p) for e, p in zip(found, adjusted, strict=True)]
        wrong += any(word != "undecided" for word in verdicts)
    assert wrong / 500 <= 0.08


def test_numbers_are_paired_by_the_seeds_that_both_have() -> None:
    found = paired_difference({0: 1.0, 1: 2.0, 2: 4.0}, {1: 1.0, 0: 0.5, 3: 9.0})
    assert (found.value, found.seeds) == (0.75, 2)
    assert found.error == pytest.approx(0.25)  # 0.5 and 1: a deviation of 0.3536, by the root of 2
    assert math.isnan(paired_difference({0: 1.0}, {0: 0.5}).error)
    assert math.isnan(paired_difference({0: 1.0}, {1: 0.5}).value)
