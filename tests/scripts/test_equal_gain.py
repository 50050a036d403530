"""Rows of a sweep at equal gains of the proxy: where a run is read, and what a verdict needs."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "scripts" / "docs"


@pytest.fixture(scope="module")
def gain() -> ModuleType:
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("equal_gain")
    finally:
        sys.path.remove(str(FOLDER))


def run(gain: ModuleType, proxies: list[float], golds: list[float], seed: int = 0) -> Any:
    points = [
        gain.Point(4 * i, gold, proxy, 0.0, {"diversity": float(i)}, {})
        for i, (proxy, gold) in enumerate(zip(proxies, golds, strict=True))
    ]
    return gain.Run("hacking_digits", "row", "proxy", seed, points)


def test_a_run_is_read_where_its_proxy_first_gains_as_much(gain: ModuleType) -> None:
    own = run(gain, [2.0, 2.4, 2.2, 2.8], [0.5, 0.7, 0.9, 0.1])
    first = gain.at_gain(own, 0.3)
    assert first.iteration == pytest.approx(3.0), "not the later crossing"
    assert first.gold == pytest.approx(0.15)
    assert first.others == {"diversity": pytest.approx(0.75)}
    assert gain.at_gain(own, 0.2).iteration == pytest.approx(2.0)
    assert gain.at_gain(own, 0.6).iteration == pytest.approx(8 + 4 * 2 / 3)
    assert gain.at_gain(own, 0.9) is None


def rows(gain: ModuleType, seeds: int, apart: float) -> dict[str, Any]:
    """A baseline whose gold falls by 0.2 or so, and a row that keeps `apart` more."""
    jitter = [0.01 * (seed % 3) for seed in range(seeds)]
    kept = {"base": 0.0, "base, KL 1": apart}
    return {
        name: [
            run(gain, [0.0, 1.0], [0.8, 0.6 + j + more * (1 + j)], seed)
            for seed, j in enumerate(jitter)
        ]
        for name, more in kept.items()
    }


@pytest.mark.parametrize(
    ("seeds", "apart", "word"),
    [(5, 0.1, "keeps more"), (5, -0.1, "keeps less"), (4, 0.1, "undecided"), (5, 0.0, "undecided")],
)
def test_verdicts_are_of_pairs_of_five_seeds(
    gain: ModuleType, seeds: int, apart: float, word: str
) -> None:
    read = {n: gain.readings(own, 1.0) for n, own in rows(gain, seeds, apart).items()}
    assert gain.verdicts(read, "base") == {"base, KL 1": word}


def test_the_table_has_the_rows_that_gain_as_much(gain: ModuleType) -> None:
    given = rows(gain, 5, 0.1)
    given["base, KL 1"] = [*given["base, KL 1"][:4], run(gain, [0.0, 0.3], [0.8, 0.8], 4)]
    lines = [*gain.table(given, "base", [0.2, 1.0, 2.0], {"diversity": "diversity"})]
    assert [line.split(" | ")[:3] for line in lines[2:]] == [
        ["| +0.2", "base", "5 of 5"],
        ["| +0.2", "base, KL 1", "5 of 5"],
        ["| +1", "base", "5 of 5"],
        ["| +1", "base, KL 1", "4 of 5"],
    ]
    assert "| early stopping |" in lines[2]
    assert lines[5].count("undecided") == 1
