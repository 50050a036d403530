import math
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from rlfactory.report.group import Group, read_member
from rlfactory.report.image_grid import CORNER
from rlfactory.report.read import read_run
from rlfactory.report.samples import draw_prompt_grid, last_images, responses, sample_images, texts

TILE = 160 * 160 - (4 - math.pi) * CORNER**2
"""The pixels of a tile with round corners."""
Make = Callable[..., Path]


def group(path: Path) -> Group:
    return Group("row", [read_member(path, read_run)])


def test_a_row_shows_its_strip_and_its_last_samples(tmp_path: Path, make_run: Make) -> None:
    path = make_run(tmp_path / "a", seed=7, media="images")
    strip, grid = sample_images([group(path)])
    assert strip.path == path / "samples" / "strip.png"
    assert grid.path == path / "samples" / "eval_000004.png"
    assert grid.caption == "samples after 4 iterations, seed 7"


def test_a_row_shows_what_was_written_before_and_after(tmp_path: Path, make_run: Make) -> None:
    one = group(make_run(tmp_path / "a", media="texts"))
    found = texts([one])[one.name]
    assert (found[0].prompt, found[0].before.text, found[0].after.text) == (
        "a red circle",
        "a red circle, 0",
        "a red circle, 4",
    )
    assert len(found) == 3
    assert (found[0].before.score, found[0].after.score) == (0.0, 0.4)
    assert math.isnan(found[2].after.score)


def test_a_row_without_samples_shows_none(tmp_path: Path, make_run: Make) -> None:
    plain = group(make_run(tmp_path / "a"))
    assert sample_images([plain, Group("paper", [])]) == []
    assert texts([plain, Group("paper", [])]) == {}


def test_samples_that_cannot_be_read_are_left_out(tmp_path: Path, make_run: Make) -> None:
    path = make_run(tmp_path / "a", media="texts")
    (path / "samples" / "strip" / "000004.json").write_text("[1, ")
    assert responses(path) == []


def kept(run: Path, colour: str, moments: tuple[int, ...] = (0, 10), rows: int = 2) -> Path:
    folder = run / "samples" / "strip"
    folder.mkdir(parents=True)
    for moment in moments:
        for row in range(rows):
            shade = colour if moment else "black"
            Image.new("RGB", (16, 16), shade).save(folder / f"{moment:06d}_{row}.png")
    return run


def test_a_row_holds_both_runs_last_images(tmp_path: Path) -> None:
    runs = [("a", kept(tmp_path / "a", "red")), ("b", kept(tmp_path / "b", "lime"))]
    path = draw_prompt_grid(runs, ["one", "two"], tmp_path / "x.png")
    assert path is not None
    with Image.open(path) as picture:
        counts = {colour: count for count, colour in picture.getcolors(1 << 20)}
    assert counts[255, 0, 0] == counts[0, 255, 0] == pytest.approx(2 * TILE, rel=0.002)
    assert (0, 0, 0) not in counts


def test_prompts_that_only_one_kept_are_left_out(tmp_path: Path) -> None:
    runs = [("a", kept(tmp_path / "a", "red", rows=1)), ("b", kept(tmp_path / "b", "lime"))]
    path = draw_prompt_grid(runs, ["one", "two"], tmp_path / "x.png")
    assert path is not None
    with Image.open(path) as picture:
        counts = {colour: count for count, colour in picture.getcolors(1 << 20)}
    assert counts[255, 0, 0] == counts[0, 255, 0] == pytest.approx(TILE, rel=0.002)


def test_without_pictures_there_is_none(tmp_path: Path) -> None:
    runs = [("a", kept(tmp_path / "a", "red")), ("b", tmp_path / "b")]
    assert draw_prompt_grid(runs, ["one"], tmp_path / "x.png") is None
    assert not (tmp_path / "x.png").exists()


def test_the_last_moment_counts_in_the_prompts_order(tmp_path: Path) -> None:
    run = kept(tmp_path / "a", "red", moments=(0, 900, 1000), rows=11)
    assert [path.name for path in last_images(run)] == [f"001000_{row}.png" for row in range(6)]


def test_scores_stand_below_the_images(tmp_path: Path) -> None:
    runs = [(name, kept(tmp_path / name, "red")) for name in "ab"]
    sizes = []
    for scores in (None, [[0.1, 0.2], [0.3, 0.4]]):
        path = draw_prompt_grid(runs, ["one", "two"], tmp_path / "x.png", scores)
        assert path is not None
        with Image.open(path) as picture:
            sizes.append(picture.height)
    assert sizes[0] < sizes[1]
