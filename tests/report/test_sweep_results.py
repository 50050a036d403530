"""The script that writes docs/results."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.sweep.sweep_file import file_of, read_sheet

DOCS = str(Path(__file__).parents[2] / "scripts" / "docs")
sys.path.insert(0, DOCS)
sweep_results = importlib.import_module("sweep_results")
sys.path.remove(DOCS)

NAME = "vgrpo_figure7"


def test_a_page_says_what_the_file_of_the_sweep_says_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filled_sweep: Callable[..., Path]
) -> None:
    folder = filled_sweep(tmp_path / f"{NAME}-tiny")
    results = tmp_path / "results"
    results.mkdir()
    (results / "index.md").write_text("# Results\n")  # no page of a sweep
    monkeypatch.setattr(sweep_results, "RESULTS", results)
    monkeypatch.setattr(sys, "argv", ["sweep_results.py", str(folder)])
    sweep_results.main()
    page = (results / f"{NAME}.md").read_text(encoding="utf-8")
    ran = read_sheet(file_of(NAME)).about.ran
    assert f"rlfactory sweep {NAME} size=tiny" in page
    assert f"Run here: {sweep_results.plain(ran)}" in page
    assert f"]({NAME}.png)" in page
    assert "## Samples" not in page
    assert (results / f"{NAME}.png").is_file()
    assert f"| [{NAME}]({NAME}.md) | " in (results / "README.md").read_text(encoding="utf-8")
