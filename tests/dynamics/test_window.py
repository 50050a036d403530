import pytest

from rlfactory.dynamics.window import (
    All,
    Decay,
    ExpDecay,
    FixedSteps,
    Progressive,
    RandomContiguous,
    RandomSubset,
    Window,
)

TOTAL = 10
WINDOWS: list[Window] = [
    All(),
    All(skip_last=1),
    FixedSteps(steps=[1, 4]),
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
    assert FixedSteps(steps=[3, 0, 3]).steps(4, seed=0, iteration=9) == [0, 3]


# Provenance: diffusion.md 1.5, MixGRPO's own states run with width 4, 25 iterations a place,
# moving by 1, at most step 23 (25 steps - 2): the first iteration of each range, and its steps.
MIX_STEPS = 25
PUBLISHED = {
    (0, 25): [0, 1, 2, 3],
    (25, 50): [1, 2, 3, 4],
    (299, 300): [11, 12, 13, 14],
    (475, 500): [19, 20, 21, 22],
    (500, 525): [20, 21, 22],
    (550, 575): [22],
    (575, 700): [],
}
EXP_DECAY_DWELLS = [25, 23, 21, 19, 17, 16, 14, 13, 12, 11, 10]  # at 13, 14, ... 23


def published(iteration: int) -> list[int]:
    """The same states in one line; it clips the window, and at last there is none."""
    start = min(iteration // 25, MIX_STEPS - 2)
    return list(range(start, min(start + 4, MIX_STEPS - 2)))


def walk(window: Window, iterations: int, total: int = MIX_STEPS) -> list[list[int]]:
    return [window.steps(total, seed=0, iteration=i) for i in range(iterations)]


def test_golden_progress_until_the_published_window_shrinks() -> None:
    found = walk(Progressive(), 700)
    for (first, end), expected in PUBLISHED.items():
        for iteration in range(first, end):
            assert published(iteration) == expected
            ours = expected if len(expected) == 4 else [19, 20, 21, 22]
            assert found[iteration] == ours
    assert found[:500] == [published(i) for i in range(500)]
    # where we differ: the published code trains ever less there, and nothing from 575 on
    assert all(ours != published(i) for i, ours in enumerate(found) if i >= 500)


def test_golden_dwells_of_exponential_decay() -> None:
    window = ExpDecay()
    assert [window.dwell(start, 23) for start in range(13, 24)] == EXP_DECAY_DWELLS
    assert {window.dwell(start, 23) for start in range(14)} == {25}
    found = [steps[0] for steps in walk(window, 1000)]
    assert [found.count(start) for start in range(13, 19)] == EXP_DECAY_DWELLS[:6]
    assert [found.count(start) for start in range(13)] == [25] * 13


def test_linear_decay_by_hand() -> None:
    window = Decay()
    # int(25 (1 - s/23) + 6 s/23), and 6 = 25 // 4 at the range's end
    assert [window.dwell(start, 23) for start in (0, 1, 10, 22, 23)] == [25, 24, 16, 6, 6]
    assert Decay(iterations=100).dwell(10, 23) == 67
    assert Decay(iterations=3).dwell(23, 23) == 1
    assert Decay(least=20).dwell(23, 23) == 20
    found = [steps[0] for steps in walk(window, 600)]
    assert [found.count(start) for start in range(19)] == [window.dwell(s, 23) for s in range(19)]


MOVING: list[Window] = [
    kind(size=size, iterations=5, step=step, low=low, high=high, at_end=at_end)
    for kind in (Progressive, Decay, ExpDecay)
    for size, low, high in ((4, 0, None), (1, 2, None), (3, 1, 7), (2, 3, 5))
    for step in (0, 1, 3, None)
    for at_end in ("clip", "roll_back")
]


@pytest.mark.parametrize("window", MOVING, ids=name)
def test_a_moving_window_keeps_its_size_and_its_range(window: Window) -> None:
    low, size = vars(window)["low"], vars(window)["size"]
    high = vars(window)["high"] or TOTAL - 2
    found = walk(window, 120, TOTAL)
    assert found[0] == list(range(low, low + size))
    for steps in found:
        assert steps == list(range(steps[0], steps[0] + size))
        assert low <= steps[0] <= steps[-1] < high
    covered, step = {i for steps in found for i in steps}, vars(window)["step"]
    if step <= size:  # a longer one leaves gaps, as asked for
        assert covered == set(range(low, high if step else low + size))


def test_at_the_end_a_window_stays_or_starts_again() -> None:
    options = {"size": 2, "iterations": 2, "step": None, "high": 5}
    places = [steps[0] for steps in walk(Progressive(**options), 10, 8)]
    assert places == [0, 0, 2, 2, 3, 3, 3, 3, 3, 3]  # 4 would stick out
    places = [steps[0] for steps in walk(Progressive(**options, at_end="roll_back"), 10, 8)]
    assert places == [0, 0, 2, 2, 3, 3, 0, 0, 2, 2]


def test_rolling_back_returns_to_the_first_step() -> None:
    window = Progressive(size=2, iterations=1, low=3, high=6, at_end="roll_back")
    assert [steps[0] for steps in walk(window, 5, 8)] == [3, 4, 3, 4, 3]


def test_a_frozen_window_and_one_as_wide_as_its_range_do_not_move() -> None:
    assert {tuple(steps) for steps in walk(Progressive(step=0), 900)} == {(0, 1, 2, 3)}
    whole = Progressive(size=4, iterations=1, low=2, high=6)
    assert {tuple(steps) for steps in walk(whole, 9, 8)} == {(2, 3, 4, 5)}


def test_mix_grpos_random_start_is_a_random_contiguous_window() -> None:
    found = walk(RandomContiguous(size=4, high=MIX_STEPS - 2), 600)
    assert {steps[0] for steps in found} == set(range(20))
