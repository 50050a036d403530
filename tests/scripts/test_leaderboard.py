"""The page of the leaderboards: runs are merged, and sentences follow from intervals."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from load_script import load_script

from rlfactory.report.leaderboard import read_entries
from rlfactory.report.report import Entry

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script(ROOT / "scripts" / "docs" / "leaderboard.py", "leaderboard_script")


def entries(gains: dict[str, float]) -> list[Entry]:
    return [
        Entry(method, "a", seed, 0.0, gain, gain + 0.01 * seed, [], [])
        for method, gain in gains.items()
        for seed in range(5)
    ]


def test_a_run_given_again_replaces_the_stored_one(script: ModuleType) -> None:
    old = entries({"nft": 0.5})
    again = replace(old[1], after=0.9)
    found = script.merged(old, [again, replace(old[1], seed=7)])
    assert len(found) == 6
    assert found[1] == again


def test_all_pairs_are_tested_paired_by_seed_with_holms_correction(script: ModuleType) -> None:
    noise = {
        method: [0.01 * ((7 * k + 3 * s) % 5) for s in range(5)] for k, method in enumerate("abc")
    }
    found = [
        replace(e, gain=e.gain + noise[e.method][e.seed])
        for e in entries({"a": 0.9, "b": 0.88, "c": 0.3})
    ]
    assert script.decided(found, ["a"]) == (3, {"a": ["c"], "b": ["c"]})
    *_, task, mean = script.verdicts(found)
    assert task == "| a | 3 | 2 | a; b | c |"
    assert mean == "| mean of the tasks | 3 | 2 | a; b | c |"
    few = [e for e in found if (e.method, e.seed) != ("c", 4)]
    assert script.decided(few, ["a"]) == (1, {})
    elsewhere = [replace(e, task="b") for e in found if e.method != "c"]
    assert script.decided([*found, *elsewhere], ["a", "b"]) == (1, {})
    # a difference of 0.02 in each seed, which all methods have in common, is decided by pairing
    assert script.decided(entries({"a": 0.5, "b": 0.48}), ["a"])[1] == {"a": ["b"]}


def test_one_pair_of_many_is_corrected_for(script: ModuleType) -> None:
    shifts = [0.02, 0.05, 0.01, 0.04, 0.03]  # t of 4.2: p is 0.013 alone
    found = [
        replace(e, gain=e.gain + (shifts[e.seed] if e.method == "a" else 0.0))
        for e in entries({"a": 0.5, "b": 0.5})
    ]
    assert script.decided(found, ["a"]) == (1, {"a": ["b"]})
    others = [replace(e, method=m) for e in found if e.method == "b" for m in "cde"]
    assert script.decided([*found, *others], ["a"]) == (10, {})
    assert [*script.verdicts([*found, *others])][-1] == "| mean of the tasks | 10 | 0 | – | – |"


def test_the_page_has_every_method_that_ran(script: ModuleType) -> None:
    shown = script.body()
    for name in script.BOARDS:
        entries = read_entries(ROOT / "docs" / "results" / f"{name}.runs.json")
        assert all(f"| {entry.method} | " in shown for entry in entries)


def test_runs_of_images_make_nearly_equal_numbers_of_forward_passes(script: ModuleType) -> None:
    entries = read_entries(ROOT / "docs" / "results" / "leaderboard.runs.json")
    made = {entry.nfe[-1] for entry in entries if entry.nfe}
    assert max(made) < 1.2 * min(made)
    assert f"{min(made):,.0f} to {max(made):,.0f} forward passes" in script.passes(entries)[0]
    assert script.passes([replace(entries[0], nfe=[])]) == []


def test_a_best_rate_at_an_end_of_the_search_is_named(script: ModuleType) -> None:
    found = {
        "shapes": {"a": {"1e-4": 0.5, "2e-4": 0.4}, "b": {"1e-4": 0.1, "2e-4": 0.3, "4e-4": 0.2}}
    }
    told = next(line for line in script.search_lines(found) if "end of what was tried" in line)
    assert told.endswith("tried: a on shapes.\n")


def test_the_best_rate_of_the_search_is_what_the_leaderboard_trains_with(
    script: ModuleType,
) -> None:
    found = script.json.loads((ROOT / "docs" / "results" / script.SEARCH).read_text())
    for line in [row for board in script.BOARDS for row in _rows(script, board)]:
        task = "shapes" if line.task == "composition" else line.task
        rewards = found[task][line.method]
        rate = max(rewards, key=rewards.get)
        assert f"optimizer.lr={float(rate):g}" in line.overrides, line.name


def _rows(script: ModuleType, board: str) -> list[Any]:
    rows: list[Any] = script.read_sheet(script.file_of(board)).rows
    return rows


def test_the_runs_of_a_search_are_stored_by_task_method_and_rate(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {"shapes": SimpleNamespace(mean=0.51234), "jpeg": SimpleNamespace(mean=None)}
    rows = [
        SimpleNamespace(name="NFT, beta 1 on shapes, optimizer.lr=0.0002", cells=numbers),
        SimpleNamespace(name="AWM on shapes, optimizer.lr=0.0001", cells={}),
    ]
    monkeypatch.setattr(script, "report_of_sweep", lambda *_: SimpleNamespace(rows=rows))
    monkeypatch.setattr(script.Table, "load", lambda _: None)
    found = script.searched_in(tmp_path)
    assert found == {"shapes": {"NFT, beta 1": {"0.0002": 0.512}}}
    store = tmp_path / "store.json"
    store.write_text('{"shapes": {"NFT, beta 1": {"0.0001": 0.4, "0.0002": 0.1}}}')
    script.add_search(found, store)
    assert script.json.loads(store.read_text()) == {
        "shapes": {"NFT, beta 1": {"0.0001": 0.4, "0.0002": 0.512}}
    }
