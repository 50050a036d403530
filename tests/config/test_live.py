"""Several rewards: when a value is that, and the names and weights of the parts."""

from typing import Any

import pytest

from rlfactory.config.live import are_several, reward_parts
from rlfactory.config.problems import PlanError


def correct() -> None:
    """Stands for a reward."""


class Scorer:
    """An instance of a `Reward`."""

    media, main = "texts", "scorer"

    def score(self) -> None: ...


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([correct, "hps"], True),
        ({"a": correct}, True),
        ({"a": "hps", "b": (Scorer(), 0.5)}, True),
        ({"timeout": 30, "weights": {"a": 1}}, False),
        (correct, False),
        ("hps", False),
        (None, False),
    ],
)
def test_settings_are_told_from_rewards(value: Any, expected: bool) -> None:
    assert are_several(value) is expected


def test_parts_have_names_and_weights() -> None:
    scorer = Scorer()
    assert reward_parts([correct, ("hps", 0.5), scorer]) == {
        "correct": (correct, None),
        "hps": ("hps", 0.5),
        "Scorer": (scorer, None),
    }
    assert reward_parts({"a": (correct, 2)}) == {"a": (correct, 2.0)}


@pytest.mark.parametrize("value", [[0.5], {"a": None}, {"a.b": correct}, [correct, correct]])
def test_what_is_no_reward_or_has_no_name_is_a_problem(value: Any) -> None:
    with pytest.raises(PlanError, match="is no reward|name each reward"):
        reward_parts(value)
