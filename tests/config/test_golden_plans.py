"""Plans are what they were: each has the stored choices, values and numbers, or its refusal."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from load_script import load_script

SCRIPT = Path(__file__).parents[2] / "scripts" / "golden" / "plans.py"
plans: ModuleType = load_script(SCRIPT, "golden_plans")
STORED = plans.stored()
PARTS = 30


def is_of_an_option(words: list[str]) -> bool:
    """Whether the first word is what is tried, not a pair or a job of a sweep: each file of
    options has one.
    """
    is_pair = [word.partition("=")[0] for word in words[:2]] == ["model", "algo"]
    return not is_pair and not any(word.startswith("seed=") for word in words)


OF_OPTIONS = [found for found in STORED if is_of_an_option(found["words"])]
OTHERS = [found for found in STORED if not is_of_an_option(found["words"])]


@pytest.fixture(scope="module", autouse=True)
def _ground() -> Iterator[None]:
    with plans.ground():
        yield


def changed(records: list[Any]) -> list[str]:
    return [
        f"{' '.join(found['words'])}: {difference}"
        for found in records
        for difference in plans.differences(found, plans.record(tuple(found["words"])))
    ]


def test_enough_is_stored() -> None:
    assert len(STORED) > 800
    assert sum("refused" in found for found in STORED) > 200
    assert len(OF_OPTIONS) > 300
    assert [found["words"] for found in OF_OPTIONS if "refused" in found] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(6))
def test_the_plan_of_an_option_is_as_stored(first: int) -> None:
    assert changed(OF_OPTIONS[first::6]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [pytest.param(i, marks=() if i % 15 == 0 else pytest.mark.whole) for i in range(PARTS)],
)
def test_a_plan_is_as_stored(first: int) -> None:
    assert changed(OTHERS[first::PARTS]) == []


@pytest.mark.slow
def test_everything_that_can_be_chosen_is_stored() -> None:
    assert [tuple(found["words"]) for found in STORED] == plans.cases()


def test_a_change_is_seen() -> None:
    before = {"words": ["a"], "config": {"algo": {"beta": 1}}, "noted": ["ema.decay"]}
    after = {"words": ["a"], "config": {"algo": {"beta": 2, "new": None}}, "noted": []}
    assert plans.differences(before, before) == []
    assert plans.differences(before, after) == [
        "config.algo.beta: 1 -> 2",
        "config.algo.new: missing -> null",
        'noted: ["ema.decay"] -> []',
    ]
