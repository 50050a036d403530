"""The driver of the GPU measurements: rows that resume, and the page; small networks on the CPU."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

BENCH = Path(__file__).parents[2] / "scripts" / "bench"
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def gpu_day() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCH))
    yield importlib.import_module("gpu_day")
    sys.path.remove(str(BENCH))


@pytest.fixture
def setup(gpu_day: ModuleType, tmp_path: Path) -> Any:
    return gpu_day.Setup(torch.device("cpu"), None, tmp_path)


def stage_of(gpu_day: ModuleType, **measures: Any) -> Any:
    rows = [gpu_day.Row(name, measure) for name, measure in measures.items()]
    return SimpleNamespace(name="some", rows=lambda setup: rows)


def test_a_row_is_measured_once_and_an_error_is_a_row(
    gpu_day: ModuleType, setup: Any, tmp_path: Path
) -> None:
    calls = []

    def good(setup: Any) -> dict[str, float]:
        calls.append("good")
        return {"speed": 2.0}

    def bad(setup: Any) -> dict[str, float]:
        calls.append("bad")
        raise RuntimeError("CUDA out of memory\nmore")

    rows, stage = gpu_day.Rows(tmp_path / "some.jsonl"), stage_of(gpu_day, bad=bad, good=good)
    gpu_day.run_stage(stage, rows, setup, minutes=1, retry=False)
    gpu_day.run_stage(stage, rows, setup, minutes=1, retry=False)
    assert calls == ["bad", "good"]
    assert rows.read()["bad"]["error"] == "RuntimeError: CUDA out of memory"
    assert rows.read()["good"]["speed"] == 2.0
    gpu_day.run_stage(stage, rows, setup, minutes=1, retry=True)
    assert calls == ["bad", "good", "bad"]


def test_a_row_whose_process_was_killed_is_not_begun_again(
    gpu_day: ModuleType, setup: Any, tmp_path: Path
) -> None:
    def killed(setup: Any) -> dict[str, float]:
        raise KeyboardInterrupt

    rows = gpu_day.Rows(tmp_path / "some.jsonl")
    stage = stage_of(gpu_day, hangs=killed, next=lambda setup: {"x": 1})
    with pytest.raises(KeyboardInterrupt):
        gpu_day.run_stage(stage, rows, setup, minutes=1, retry=False)
    gpu_day.run_stage(stage, rows, setup, minutes=1, retry=False)
    assert "not ended" in rows.read()["hangs"]["error"]
    assert rows.read()["next"]["x"] == 1


def test_a_stage_stops_before_its_time_is_over(
    gpu_day: ModuleType, setup: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = gpu_day.Rows(tmp_path / "some.jsonl")
    stage = stage_of(gpu_day, one=lambda setup: {"x": 1})
    gpu_day.run_stage(stage, rows, setup, minutes=-1, retry=False)
    assert not rows.read()
    assert "the same command resumes here" in capsys.readouterr().out


@pytest.mark.slow
def test_both_kinds_of_network_run_small(gpu_day: ModuleType, setup: Any) -> None:
    stages = {stage.name: stage for stage in gpu_day.STAGES}
    rows = {row.name: row for row in stages["first"].rows(setup)}
    assert len(rows) == 17
    for name in ("flux_dev awm", "sd14 ddpo"):
        found = gpu_day.measured(rows[name], setup)
        assert "error" not in found, found
        assert found["images/s in all"] > 0


def test_a_ratio_is_by_the_wall_of_both_sides(
    gpu_day: ModuleType, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages, typed = sys.modules[gpu_day.Stage.__module__], []

    def run(command: str, folder: Path) -> dict[str, Any]:
        typed.append((command, folder))
        sides = {
            "itself": {"cpu": [1, 1], "wall": [3, 6]},
            "floor": {"cpu": [1, 1], "wall": [2, 4]},
        }
        return {"comparisons": {"nft, iteration": sides}}

    monkeypatch.setattr(stages, "run", run)
    found = stages.ratios("iteration.py --only nft", "--rounds 1", setup)
    assert typed == [("iteration.py --only nft --rounds 1", setup.folder)]
    assert found == {
        "iteration, itself, s": 4.5,
        "iteration, floor, s": 3,
        "iteration, times as fast": 1.5,
    }


def test_all_stages_have_rows_with_names_of_their_own(gpu_day: ModuleType, setup: Any) -> None:
    for stage in gpu_day.STAGES:
        names = [row.name for row in stage.rows(setup)]
        assert names
        assert len(names) == len(set(names))


def test_the_page_has_a_table_for_each_stage(gpu_day: ModuleType) -> None:
    found = {"first": {"sd14 nft": {"peak GiB": 12.345, "error": "a | b"}, "x": {"n": 2}}}
    text = gpu_day.page(found, "NVIDIA X")
    assert "| sd14 nft | 12.3 | a / b |  |" in text
    assert "Device: NVIDIA X." in text
    assert text.count(gpu_day.EMPTY) == len(gpu_day.STAGES) - 1


def test_the_documentation_has_the_generated_page(gpu_day: ModuleType) -> None:
    text = (DOCS / "gpu.md").read_text(encoding="utf-8")
    if "Device: " not in text:
        assert text == gpu_day.page({}, "")
    assert text.startswith(gpu_day.HEAD)


def test_rows_are_lines_of_json(gpu_day: ModuleType, tmp_path: Path) -> None:
    rows = gpu_day.Rows(tmp_path / "folder" / "some.jsonl")
    rows.write("a", {"x": 1})
    rows.write("a", {"x": 2})
    assert rows.read() == {"a": {"x": 2}}
    lines = rows.file.read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == ["a", "a"]
