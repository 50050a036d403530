"""docs/performance.md says what is stored, and what is stored was made by the commands it names."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = str(Path(__file__).parents[2] / "scripts" / "bench")


@pytest.fixture(scope="module", autouse=True)
def bench() -> Iterator[None]:
    sys.path.insert(0, BENCH)
    yield
    sys.path.remove(BENCH)


@pytest.fixture(scope="module")
def sides() -> ModuleType:
    return importlib.import_module("sides")


@pytest.fixture(scope="module")
def performance() -> ModuleType:
    return importlib.import_module("performance")


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return importlib.import_module("performance_page")


def test_the_page_has_the_tables_of_the_stored_figures(page: ModuleType) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert [match[1] for match in page.MARK.finditer(text)] == list(page.TABLES)
    assert page.filled(text) == text


def test_a_number_elsewhere_in_the_page_has_its_source(
    page: ModuleType, performance: ModuleType
) -> None:
    text = page.MARK.sub("", page.PAGE.read_text(encoding="utf-8"))
    noted = performance.read()["noted"]
    assert all(noted.values())
    for said in noted:
        assert said in text
        text = text.replace(said, "")
    # but for names such as GPT-2
    assert re.findall(r"(?<![\w-])\d[\d.,]*", re.sub(r"`[^`]*`", "", text)) == []


def test_every_row_was_made_by_its_command_or_has_its_source(performance: ModuleType) -> None:
    stored = performance.read()
    assert set(stored) <= {*performance.ROWS, "noted", "smollm2"}
    for name in set(stored) - {"noted"}:
        made_by = performance.ROWS[name].command if name in performance.ROWS else ""
        assert stored[name].get("command") == made_by or stored[name]["source"]
        assert stored[name]["runs"]


def test_memory_grows_as_the_page_says(performance: ModuleType) -> None:
    for run in performance.read().get("memory", {"runs": []})["runs"]:
        held = {name: found["held"] for name, found in run["figures"].items()}
        for algorithm in ("nft", "grpo"):
            assert held[f"{algorithm}, 40 steps"] < 1.1 * held[f"{algorithm}, 10 steps"]
        for larger in ("64 responses of 32 tokens", "32 responses of 64 tokens"):
            assert held[larger] > 1.7 * held["32 responses of 32 tokens"]
        assert held["vocabulary 262,144"] < 2 * held["vocabulary 65,536"]


def test_a_row_is_measured_anew_without_the_others(
    performance: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def run(command: str, environments: Path) -> dict[str, Any]:
        calls.append(command)
        return {"figures": len(calls)}

    monkeypatch.setattr(performance, "STORED", tmp_path / "performance.json")
    monkeypatch.setattr(performance, "run", run)
    performance.write({"noted": {"a": "b"}, "ppo": {"command": "old", "runs": [1, 2]}})
    assert performance.is_missing("ppo", performance.read())
    performance.measure("ppo", tmp_path)
    command = performance.ROWS["ppo"].command
    assert calls == [command, command]
    assert performance.read() == {
        "noted": {"a": "b"},
        "ppo": {"command": command, "runs": [{"figures": 1}, {"figures": 2}]},
    }
    assert not performance.is_missing("ppo", performance.read())


def clock_of(sides: ModuleType, spent: list[tuple[float, float]]) -> Callable[[], Any]:
    """A clock that is read before and after each work, between which these seconds pass."""
    at, readings = (0.0, 0.0), []
    for cpu, wall in spent:
        readings += [at, (at[0] + cpu, at[1] + wall)]
        at = readings[-1]
    return iter(readings).__next__


def test_sides_take_turns_after_one_for_warm_up(sides: ModuleType) -> None:
    order: list[str] = []

    def plain() -> None:
        order.append("plain")

    def double() -> float:
        order.append("double")
        return 2.0

    clock = clock_of(sides, [(9, 9), (9, 9), (1, 2), (4, 6), (2, 2), (8, 10)])
    found = sides.turns({"plain": plain, "double": double}, 2, clock)
    assert order == ["plain", "double"] * 3
    assert found == {"plain": sides.Side([1, 2], [2, 2]), "double": sides.Side([2, 4], [3, 5])}


def test_a_ratio_is_the_median_of_the_turns(sides: ModuleType) -> None:
    # the second of three turns ran while the machine was busy
    one, other = sides.Side([2, 90, 3], [4, 90, 4]), sides.Side([1, 45, 1], [1, 90, 2])
    assert sides.ratio(one, other, "cpu") == 2
    assert sides.ratio(one, other, "wall") == 2
    assert "| iteration: ours | 1 | 2.00 × | 2 | 2.00 × |" in sides.table(
        {"iteration": {"TRL": one, "ours": other}}
    )


def test_first_iterations_of_processes_do_not_count(sides: ModuleType) -> None:
    def measured(gib: float) -> dict[str, Any]:
        phases = {"rollout": 2.0, "rollout cpu": 1.0, "learn": 3.0, "learn cpu": 2.5}
        slow = {phase: 3 * spent for phase, spent in phases.items()}
        return {"iterations": [slow, phases, phases], "peak_gib": gib}

    side = sides.side_of([measured(0.5), measured(0.4)])
    assert side == sides.Side([3.5] * 4, [5.0] * 4, 0.4)
