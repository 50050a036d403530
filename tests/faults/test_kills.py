"""Some of what `scripts/faults.py` does many times."""

from pathlib import Path

import pytest
from faulty import corruptions, kills

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.whole)])
def test_kills_at_random_moments(count: int, tmp_path: Path) -> None:
    tally = kills.run(count, 0, tmp_path)
    assert tally.failures == []
    assert tally.attempted == tally.passed == count


def test_thirty_kinds_of_damage(tmp_path: Path) -> None:
    tally = corruptions.run(30, 0, tmp_path)
    assert tally.failures == []
    assert tally.attempted == tally.passed == 30
