"""Every algorithm, killed at every point of its loop, ends bit for bit as if it had not been."""

import importlib.util
from pathlib import Path

import pytest
from faulty.points import CHAIN, killed_and_ended
from faulty.runs import OF_IMAGES, OF_TEXTS, POINTED

from rlfactory.listing import describe_options

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
OTHERS = ("scoring:kill:4", "renaming:kill", "evaluating:kill")
REMOVING = ("checkpoint.keep=1", "checkpoint.best=false", "evaluation.every=0")


@pytest.mark.parametrize("name", POINTED)
def test_a_run_killed_at_each_point_ends_bit_for_bit(name: str, tmp_path: Path) -> None:
    if name == "8-bit" and importlib.util.find_spec("bitsandbytes") is None:
        pytest.skip("needs bitsandbytes: pip install 'rlfactory[gpu]'")
    assert killed_and_ended(POINTED[name], tmp_path, CHAIN) == []


@pytest.mark.parametrize("name", ["nft", "ppo"])
def test_the_other_points_lose_nothing_either(name: str, tmp_path: Path) -> None:
    assert killed_and_ended(POINTED[name], tmp_path, OTHERS) == []


def test_what_was_half_removed_is_gone(tmp_path: Path) -> None:
    words = [*POINTED["nft"], *REMOVING]
    assert killed_and_ended(words, tmp_path, ["removing:kill"]) == []


def test_no_algorithm_is_left_out() -> None:
    assert sorted([*OF_IMAGES, *OF_TEXTS]) == sorted(describe_options("algo", []))
