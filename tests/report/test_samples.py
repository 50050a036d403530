from collections.abc import Callable
from pathlib import Path

from rlfactory.report.group import Group, read_member
from rlfactory.report.read import read_run
from rlfactory.report.samples import pictures, responses, texts

Make = Callable[..., Path]


def group(path: Path) -> Group:
    return Group("row", [read_member(path, read_run)])


def test_a_row_shows_its_strip_and_its_last_samples(tmp_path: Path, make_run: Make) -> None:
    path = make_run(tmp_path / "a", seed=7, media="images")
    strip, grid = pictures([group(path)])
    assert strip.path == path / "samples" / "strip.png"
    assert grid.path == path / "samples" / "eval_000004.png"
    assert grid.caption == "samples after 4 iterations, seed 7"


def test_a_row_shows_what_was_written_before_and_after(tmp_path: Path, make_run: Make) -> None:
    found = texts([group(make_run(tmp_path / "a", media="texts"))])
    assert [(t.prompt, t.before, t.after) for t in found][0] == (
        "a red circle",
        "a red circle, 0",
        "a red circle, 4",
    )
    assert len(found) == 3


def test_a_row_without_samples_shows_none(tmp_path: Path, make_run: Make) -> None:
    plain = group(make_run(tmp_path / "a"))
    assert pictures([plain, Group("paper", [])]) == []
    assert texts([plain, Group("paper", [])]) == []


def test_samples_that_cannot_be_read_are_left_out(tmp_path: Path, make_run: Make) -> None:
    path = make_run(tmp_path / "a", media="texts")
    (path / "samples" / "strip" / "000004.json").write_text("[1, ")
    assert responses(path) == []
