from pathlib import Path

from PIL import Image

from rlfactory.report.side_by_side import draw_pairs, last_pictures


def kept(run: Path, colour: str, moments: tuple[int, ...] = (0, 10), rows: int = 2) -> Path:
    folder = run / "samples" / "strip"
    folder.mkdir(parents=True)
    for moment in moments:
        for row in range(rows):
            shade = colour if moment else "black"
            Image.new("RGB", (16, 16), shade).save(folder / f"{moment:06d}_{row}.png")
    return run


def test_a_row_holds_both_runs_last_pictures(tmp_path: Path) -> None:
    runs = [("a", kept(tmp_path / "a", "red")), ("b", kept(tmp_path / "b", "lime"))]
    path = draw_pairs(runs, ["one", "two"], tmp_path / "x.png")
    assert path is not None
    with Image.open(path) as picture:
        counts = {colour: count for count, colour in picture.getcolors(1 << 20)}
    assert counts[255, 0, 0] == counts[0, 255, 0] == 2 * 160 * 160
    assert (0, 0, 0) not in counts


def test_prompts_that_only_one_kept_are_left_out(tmp_path: Path) -> None:
    runs = [("a", kept(tmp_path / "a", "red", rows=1)), ("b", kept(tmp_path / "b", "lime"))]
    path = draw_pairs(runs, ["one", "two"], tmp_path / "x.png")
    assert path is not None
    with Image.open(path) as picture:
        counts = {colour: count for count, colour in picture.getcolors(1 << 20)}
    assert counts[255, 0, 0] == counts[0, 255, 0] == 160 * 160


def test_without_pictures_there_is_none(tmp_path: Path) -> None:
    runs = [("a", kept(tmp_path / "a", "red")), ("b", tmp_path / "b")]
    assert draw_pairs(runs, ["one"], tmp_path / "x.png") is None
    assert not (tmp_path / "x.png").exists()


def test_the_last_moment_counts_in_the_prompts_order(tmp_path: Path) -> None:
    run = kept(tmp_path / "a", "red", moments=(0, 900, 1000), rows=11)
    names = [path.name for path in last_pictures(run)]
    assert names[:2] == ["001000_0.png", "001000_1.png"]
    assert names[-1] == "001000_10.png"
