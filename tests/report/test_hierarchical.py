"""The difference of two rows over seeds and prompts, and how well its standard error is known."""

import numpy as np
import pytest

from rlfactory.report.verdicts import SeedScores, constant, difference, interval

PROMPTS = tuple(f"prompt {i}" for i in range(48))
Rows = tuple[dict[int, SeedScores], dict[int, SeedScores]]


def rows(
    rng: np.random.Generator, *, seeds: int = 5, gain: float = 0.0, sds: tuple[float, ...]
) -> Rows:
    """Two rows whose difference varies by seed, by prompt, and by both, with these deviations."""
    by_seed, by_prompt, by_both = sds
    of_prompt = by_prompt * rng.normal(size=len(PROMPTS))
    first, second = {}, {}
    for seed in range(seeds):
        base = rng.normal(size=len(PROMPTS))
        own = gain + by_seed * rng.normal() + of_prompt + by_both * rng.normal(size=len(PROMPTS))
        first[seed], second[seed] = SeedScores(PROMPTS, base + own), SeedScores(PROMPTS, base)
    return first, second


@pytest.mark.parametrize("sds", [(0.1, 0.0, 0.3), (0.0, 0.5, 0.3), (0.1, 0.7, 0.5)])
@pytest.mark.parametrize("seeds", [5, 10])
def test_the_interval_covers_the_true_difference(seeds: int, sds: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(300):
        estimate = difference(*rows(rng, seeds=seeds, gain=0.2, sds=sds), resamples=300)
        low, high = interval(estimate) or (0.0, 0.0)
        covered.append(low <= 0.2 <= high)
    assert 0.925 <= np.mean(covered) <= 1.0


def test_other_prompts_in_each_seed_are_resampled_within_it() -> None:
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(300):
        first, second = rows(rng, gain=0.2, sds=(0.1, 0.0, 0.5))
        names = {seed: tuple(f"{seed}, {text}" for text in PROMPTS) for seed in first}
        first = {s: SeedScores(names[s], x.values) for s, x in first.items()}
        second = {s: SeedScores(names[s], x.values) for s, x in second.items()}
        low, high = interval(difference(first, second, resamples=300)) or (0.0, 0.0)
        covered.append(low <= 0.2 <= high)
    assert 0.925 <= np.mean(covered) <= 1.0


def test_seeds_alone_give_students_error() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=6)
    first = {s: SeedScores((), values[[s]]) for s in range(6)}
    estimate = difference(first, constant(0.5, first), resamples=20000)
    assert estimate.value == pytest.approx(values.mean() - 0.5)
    assert estimate.error == pytest.approx(values.std(ddof=1) / np.sqrt(6), rel=0.03)
    assert (estimate.seeds, estimate.prompts) == (6, 1)


def test_a_constant_beside_scores_of_prompts_does_not_count_as_one() -> None:
    first = {s: SeedScores(tuple("abcde"), np.arange(5.0) + s) for s in range(3)}
    assert difference(first, constant(0.5, first)).prompts == 5
    assert difference(first, constant(0.5, first)).seeds == 3


def test_paired_prompts_count_by_their_differences() -> None:
    first, second = rows(np.random.default_rng(3), gain=0.1, sds=(0.05, 0.0, 0.05))
    other = tuple(f"other {text}" for text in PROMPTS)
    apart = {seed: SeedScores(other, scores.values) for seed, scores in second.items()}
    paired, unpaired = difference(first, second), difference(first, apart)
    assert paired.value == pytest.approx(unpaired.value)
    assert paired.error < unpaired.error / 2


def test_exchanged_rows_have_the_opposite_difference_and_the_same_error() -> None:
    first, second = rows(np.random.default_rng(4), gain=0.1, sds=(0.1, 0.2, 0.3))
    ahead, behind = difference(first, second), difference(second, first)
    assert (ahead.value, ahead.error) == pytest.approx((-behind.value, behind.error))


def test_only_seeds_and_prompts_that_both_scored_count() -> None:
    values = np.arange(4.0)
    hole = np.array([np.nan, 1.0, 2.0, 3.0])
    names = PROMPTS[:4]
    first = {0: SeedScores(names, values), 1: SeedScores(names, hole), 2: SeedScores(names, values)}
    second = {0: SeedScores(names, values - 1), 1: SeedScores(names, values - 2)}
    estimate = difference(first, second)
    assert (estimate.value, estimate.seeds, estimate.prompts) == (1.5, 2, 3)


@pytest.mark.parametrize("gain", [0.0, 0.1])
def test_rows_that_differ_by_a_constant_have_no_error(gain: float) -> None:
    first, second = rows(np.random.default_rng(5), gain=gain, sds=(0.0, 0.0, 0.0))
    estimate = difference(first, second)
    assert (estimate.value, estimate.error) == (pytest.approx(gain), 0.0)


def test_too_few_seeds_have_no_error() -> None:
    first, second = rows(np.random.default_rng(6), seeds=1, sds=(0.1, 0.1, 0.1))
    assert np.isnan(difference(first, second).error)
    assert interval(difference(first, second)) is None
    assert difference(first, {}).seeds == 0
