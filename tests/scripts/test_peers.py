"""The tables of presets, and the numbers of what the peers differ in."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = str(ROOT / "scripts" / "docs")
sys.path.insert(0, DOCS)
peers = importlib.import_module("peers")
sys.path.remove(DOCS)


def test_every_preset_has_a_column():
    shipped = {path.stem for path in (ROOT / "conf" / "experiment" / "peer").glob("*.yaml")}
    columns = [peer for family in peers.FAMILIES.values() for peer in family]
    assert sorted(columns) == sorted(shipped)


def test_every_disagreement_has_its_number():
    page = (ROOT / "docs" / "reference" / "peers.md").read_text(encoding="utf-8")
    numbers = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    assert [n for n in numbers if n.isdigit()] == [str(n) for n in range(1, 26)]


def test_a_row_is_as_long_as_its_head():
    lines = peers.table(["ddpo", "nft"]).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert len(lines) > 25


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "null"), (True, "true"), (1e-5, "1e-5"), (3e-10, "3e-10"), (0.004, "0.004"), (5, "5")],
)
def test_values_are_shown_as_they_are_typed(value, expected):
    assert peers.shown(value) == expected
