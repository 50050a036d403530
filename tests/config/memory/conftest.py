"""The benches' modules: full-size pipelines without weights."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[3] / "scripts" / "bench"


@pytest.fixture(scope="session")
def bench() -> Iterator[ModuleType]:
    """`scripts/bench/published.py`."""
    sys.path.insert(0, str(BENCH))
    module = importlib.import_module("published")
    yield module
    sys.path.remove(str(BENCH))
