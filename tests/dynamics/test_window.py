import pytest

from rlfactory.dynamics.window import All, Fixed, RandomContiguous, RandomSubset, Window

TOTAL = 10
WINDOWS: list[Window] = [
    All(),
    All(skip_last=1),
    Fixed(steps=[1, 4]),
    RandomSubset(size=3),
    RandomSubset(size=2, low=2, high=6),
    RandomContiguous(size=3),
    RandomContiguous(size=2, low=2, high=6),
]


def name(window: Window) -> str:
    return f"{type(window).__name__}{vars(window)}"


def draws(window: Window, count: int = 200, seed: int = 0) -> list[list[int]]:
    return [window.steps(TOTAL, seed=seed, iteration=i) for i in range(count)]


@pytest.mark.parametrize("window", WINDOWS, ids=name)
def test_every_window_is_ascending_without_repeats_and_inside_the_steps(window: Window) -> None:
    for steps in draws(window):
        assert steps == sorted(set(steps))
        assert steps
        assert 0 <= steps[0] <= steps[-1] < TOTAL


@pytest.mark.parametrize("window", WINDOWS, ids=name)
def test_a_window_is_a_function_of_seed_and_iteration(window: Window) -> None:
    assert draws(window) == draws(window)


@pytest.mark.parametrize("kind", [RandomSubset, RandomContiguous])
def test_random_windows_vary_with_iteration_and_seed(
    kind: type[RandomSubset] | type[RandomContiguous],
) -> None:
    window = kind(size=2, high=TOTAL)
    assert len({tuple(steps) for steps in draws(window)}) > 5
    assert draws(window, seed=0) != draws(window, seed=1)


@pytest.mark.parametrize("kind", [RandomSubset, RandomContiguous])
@pytest.mark.parametrize(("low", "high"), [(0, None), (2, 6), (3, 5)])
def test_random_windows_have_their_size_and_reach_both_bounds(
    kind: type[RandomSubset] | type[RandomContiguous], low: int, high: int | None
) -> None:
    window = kind(size=2, low=low, high=high)
    found = draws(window)
    assert {len(steps) for steps in found} == {2}
    end = TOTAL // 2 if kind is RandomContiguous else TOTAL
    assert {i for steps in found for i in steps} == set(range(low, high or end))


def test_a_contiguous_window_is_one_run_and_its_last_start_is_possible() -> None:
    found = draws(RandomContiguous(size=3, high=TOTAL))
    assert all(steps == list(range(steps[0], steps[0] + 3)) for steps in found)
    assert {steps[0] for steps in found} == set(range(TOTAL - 3 + 1))


def test_a_contiguous_window_keeps_to_the_noisier_half_where_it_fits() -> None:
    assert max(max(steps) for steps in draws(RandomContiguous(size=2))) == TOTAL // 2 - 1
    whole = RandomContiguous(size=TOTAL)
    assert whole.steps(TOTAL, seed=0, iteration=0) == list(range(TOTAL))


def test_a_subset_need_not_be_contiguous() -> None:
    assert any(steps[1] - steps[0] > 1 for steps in draws(RandomSubset(size=2)))


def test_all_and_fixed() -> None:
    assert All().steps(4, seed=0, iteration=0) == [0, 1, 2, 3]
    assert All(skip_last=1).steps(4, seed=0, iteration=0) == [0, 1, 2]
    assert Fixed(steps=[3, 0, 3]).steps(4, seed=0, iteration=9) == [0, 3]
