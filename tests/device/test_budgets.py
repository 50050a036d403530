"""What the host waits for may only become less, and stays within the bars."""

from typing import Any

import pytest
import wait_budgets
from pretended.client import Pretended

TABLE = wait_budgets.read_table()
BARS = {"images": {"step": 1, "micro_batch": 2}, "texts": {"step": 1 / 8, "micro_batch": 4}}
"""Waits of a sampling step or token, and of a micro-batch of learning."""
STEADY = ("step", "micro_batch", "old log-probabilities", "update")
"""Units without a pageable copy."""


def cases() -> list[Any]:
    """The table's cases; of all but two, every second runs with `--whole`."""
    others = [name for name in TABLE if name not in ("sd3_nft", "gpt2_ppo")]
    marks = {name: pytest.mark.whole for name in others[1::2]}
    return [pytest.param(name, marks=marks.get(name, ())) for name in TABLE]


@pytest.mark.slow
@pytest.mark.parametrize("name", cases())
def test_waits_are_those_of_the_table(pretended: Pretended, name: str) -> None:
    case = TABLE[name]
    measured = pretended.measure(*case["words"].split())
    lines, rose = wait_budgets.differences(case, measured)
    if rose:
        pytest.fail("\n".join(["the host waits more often than before:", *lines]))
    advice = f"python tests/device/wait_budgets.py --write {name}"
    assert not lines, "\n".join([f"fewer waits; lower the table by `{advice}`:", *lines])


@pytest.mark.parametrize("name", TABLE)
def test_budgets_are_within_the_bars(name: str) -> None:
    case = TABLE[name]
    medium = "texts" if "gpt2" in case["words"] else "images"
    for unit, bar in BARS[medium].items():
        assert case["waits"].get(unit, 0) <= bar, f"waits per {unit}"
    assert not sum(case["pageable"].get(unit, 0) for unit in STEADY), "pageable copies"
