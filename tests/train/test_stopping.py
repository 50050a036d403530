import json
import math
from typing import Literal

import pytest

from rlfactory.train.components import RunStop

Mode = Literal["any", "all"]


def stops(stop: RunStop, *means: tuple[float | None, float]) -> list[bool]:
    return [stop.update(kl, reward) is not None for kl, reward in means]


def test_patience_counts_iterations_in_a_row_and_a_clean_one_resets_it() -> None:
    stop = RunStop(kl=0.05, patience=3)
    kls = [0.06, 0.06, 0.05, 0.06, 0.07, 0.06, 0.06, 0.01]
    found = stops(stop, *((kl, 0.0) for kl in kls))
    assert found == [False, False, False, False, False, True, True, False]


@pytest.mark.parametrize("patience", [1, 4])
def test_a_constant_reward_above_the_threshold_stops_when_patience_ends(patience: int) -> None:
    found = stops(RunStop(reward=0.9, patience=patience), *[(0.0, 0.91)] * patience)
    assert found == [False] * (patience - 1) + [True]


def test_a_reward_at_the_threshold_never_stops() -> None:
    assert not any(stops(RunStop(reward=0.9), *[(9.0, 0.9)] * 10))


def test_the_mean_over_a_full_window_counts() -> None:
    stop = RunStop(reward=1.0, window=3)
    rewards = [5.0, 5.0, -5.0, 5.0, 3.5, -6.0, 9.0]  # means 1.67, 1.67, 1.17, 0.83, 2.17
    found = stops(stop, *((None, reward) for reward in rewards))
    assert found == [False, False, True, True, True, False, True]


RULES = [(0.0, 0.0), (0.1, 0.0), (0.0, 1.0), (0.1, 1.0)]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("any", [False, True, True, True]), ("all", [False, False, False, True])],
)
def test_either_rule_or_both(mode: Mode, expected: list[bool]) -> None:
    stop = RunStop(kl=0.05, reward=0.9, mode=mode)
    assert stops(stop, *RULES) == expected


def test_rules_may_take_turns_where_any_will_do() -> None:
    stop = RunStop(kl=0.05, reward=0.9, patience=2)
    assert stops(stop, (0.1, 0.0), (0.0, 1.0)) == [False, True]


@pytest.mark.parametrize("mode", ["any", "all"])
def test_all_of_one_rule_is_that_rule(mode: Mode) -> None:
    stop = RunStop(reward=0.9, mode=mode)
    assert stops(stop, *RULES) == [False, False, True, True]
    none = RunStop(mode=mode)
    assert not any(stops(none, *RULES))


@pytest.mark.parametrize("unknown", [None, math.nan])
def test_a_divergence_that_is_not_known_breaks_no_rule(unknown: float | None) -> None:
    assert (
        stops(RunStop(kl=0.05, patience=2), (0.1, 0.0), (unknown, 0.0), (0.1, 0.0)) == [False] * 3
    )
    assert not any(stops(RunStop(kl=0.05, reward=0.9, mode="all"), (unknown, 1.0)))
    assert all(stops(RunStop(kl=0.05, reward=0.9), (unknown, 1.0)))


def test_says_why() -> None:
    stop = RunStop(kl=0.05, reward=0.9, patience=2)
    stop.update(0.0625, 0.0)
    expected = "KL 0.0625 is above 0.05 and reward 0.95 is above 0.9, 2 iterations in a row."
    assert stop.update(0.0625, 0.95) == expected


def test_goes_on_from_its_state() -> None:
    means = [(0.1, 0.0), (0.02, 2.0), (0.09, 1.0), (0.0, 0.0), (0.2, 1.5), (0.1, 0.0)]
    for cut in range(len(means)):
        whole, first, second = (
            RunStop(kl=0.05, reward=0.9, window=2, patience=2) for _ in range(3)
        )
        expected = [whole.update(*mean) for mean in means]
        stops(first, *means[:cut])
        second.update(9.0, 9.0)  # forgotten
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert [second.update(*mean) for mean in means[cut:]] == expected[cut:]
    assert any(expected)
