"""Some of what `scripts/faults.py` does many times."""

from pathlib import Path

import pytest
from faulty import corruptions, kills

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.mark.whole  # test_points.py kills at named moments
def test_kills_at_random_moments(tmp_path: Path) -> None:
    tally = kills.run(20, 0, tmp_path)
    assert tally.failures == []
    assert tally.attempted == tally.passed == 20


def test_thirty_kinds_of_damage(tmp_path: Path) -> None:
    tally = corruptions.run(30, 0, tmp_path)
    assert tally.failures == []
    assert tally.attempted == tally.passed == 30
