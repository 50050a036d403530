"""What tests of accidents share: the scripts that make them, and a warm process to fork from."""

import sys
from pathlib import Path

import pytest

SCRIPTS = str(Path(__file__).parents[2] / "scripts")
if SCRIPTS not in sys.path:
    sys.path.append(SCRIPTS)


@pytest.fixture(scope="session", autouse=True)
def _warm() -> None:
    from faulty.attempt import warm_up

    warm_up()
