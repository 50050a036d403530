"""Every algorithm, killed at every point of its loop, ends bit for bit as if it had not been."""

from pathlib import Path

import pytest
from faulty.points import CHAIN, killed_and_ended
from faulty.runs import ALGORITHMS

from rlfactory.config.options import describe_options

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_killed_at_each_point_ends_bit_for_bit(name: str, tmp_path: Path) -> None:
    assert killed_and_ended(ALGORITHMS[name], tmp_path, CHAIN) == []


def test_no_algorithm_is_left_out() -> None:
    assert sorted(ALGORITHMS) == sorted(describe_options("algo", []))
