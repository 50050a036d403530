"""The page of full-size models' defaults is what the configurations say."""

import importlib
import sys
from pathlib import Path

import pytest

DOCS = str(Path(__file__).parents[2] / "scripts" / "docs")
sys.path.insert(0, DOCS)
defaults = importlib.import_module("defaults")
sys.path.remove(DOCS)


@pytest.mark.slow
def test_the_page_is_not_stale() -> None:
    assert defaults.PART.stale() == defaults.PART.fresh(), (
        "python scripts/docs/defaults.py writes it anew"
    )
