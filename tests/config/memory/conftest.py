"""The benches' modules: full-size pipelines without weights, and networks of shapes alone."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[3] / "scripts" / "bench"


@pytest.fixture(scope="session")
def bench() -> Iterator[ModuleType]:
    """`scripts/bench/published.py`, with `ghost.py` as its attribute."""
    sys.path.insert(0, str(BENCH))
    module = importlib.import_module("published")
    module.ghost = importlib.import_module("ghost")
    yield module
    sys.path.remove(str(BENCH))
