"""The page of peers says what their presets are."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("peers", ROOT / "scripts" / "docs" / "peers.py")
peers = importlib.util.module_from_spec(spec)
sys.modules["peers"] = peers
spec.loader.exec_module(peers)


@pytest.fixture(scope="module")
def fresh():
    return peers.page(peers.PAGE.read_text(encoding="utf-8"))


def test_the_page_is_not_stale(fresh):
    stale = peers.PAGE.read_text(encoding="utf-8")
    assert stale == fresh, "python scripts/docs/peers.py writes it anew"


def test_every_preset_has_a_column():
    shipped = {path.stem for path in (ROOT / "conf" / "experiment" / "peer").glob("*.yaml")}
    columns = [peer for family in peers.FAMILIES.values() for peer in family]
    assert sorted(columns) == sorted(shipped)


def test_every_disagreement_has_its_number(fresh):
    numbers = [line.split("|")[1].strip() for line in fresh.splitlines() if line.startswith("| ")]
    assert [n for n in numbers if n.isdigit()] == [str(n) for n in range(1, 25)]


def test_a_row_is_as_long_as_its_head(fresh):
    tables = fresh.partition(peers.BEGIN)[2].split("###")[1:]
    assert len(tables) == len(peers.FAMILIES)
    for table in tables:
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) == 1
        assert len(lines) > 25


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "null"), (True, "true"), (1e-5, "1e-5"), (3e-10, "3e-10"), (0.004, "0.004"), (5, "5")],
)
def test_values_are_shown_as_they_are_typed(value, expected):
    assert peers.shown(value) == expected
