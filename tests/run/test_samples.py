"""The table of samples."""

import json
import math
from pathlib import Path

import pytest

from rlfactory.run.samples import SampleTable, sample_table
from rlfactory.utils.data_files import FileError


def test_a_row_has_prompt_text_and_scores() -> None:
    scores = {"main": [0.5, math.nan], "KL": [1.0, 2.0]}
    table = sample_table("title", ["a", "b"], ["x", "y"], scores)
    assert table.columns == ["prompt", "response", "main", "KL"]
    assert table.rows == [["a", "x", 0.5, 1.0], ["b", "y", None, 2.0]]
    assert table.heads == table.columns
    assert table.with_images(str) == table.rows


def test_pictures_stand_before_the_rows_that_have_one() -> None:
    places = [Path("0.png"), Path("1.png"), Path("2.png")]
    table = sample_table("t", ["a", "b"], None, {"main": [1.0, 2.0]}, places)
    assert table.heads == ["image", "prompt", "main"]
    assert table.with_images(lambda path: path.stem) == [["0", "a", 1.0], ["1", "b", 2.0]]
    fewer = sample_table("t", ["a", "b"], None, {"main": [1.0, 2.0]}, places[:1])
    assert [row[0] for row in fewer.with_images(lambda path: path.stem)] == ["0", None]


def test_it_is_read_as_it_was_written_and_may_be_moved(tmp_path: Path) -> None:
    (tmp_path / "a" / "strip").mkdir(parents=True)
    picture = tmp_path / "a" / "strip" / "0.png"
    picture.touch()
    table = sample_table("ü", ["a", "b"], None, {"main": [1.0, math.nan]}, [picture])
    table.save(tmp_path / "a" / "eval_000001.json")
    assert json.loads((tmp_path / "a" / "eval_000001.json").read_text())["title"] == "ü"
    assert SampleTable.load(tmp_path / "a" / "eval_000001.json") == table
    (tmp_path / "a").rename(tmp_path / "b")
    moved = SampleTable.load(tmp_path / "b" / "eval_000001.json")
    assert moved.pictures == [tmp_path / "b" / "strip" / "0.png"]
    moved.pictures[0].unlink()
    assert SampleTable.load(tmp_path / "b" / "eval_000001.json").pictures == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rows": [["a", 1.0], ["b"]]}, "other columns than it names"),
        ({"columns": ["text", "main"]}, "other columns than it names"),
        ({"pictures": ["../0.png"]}, "images that are not its own"),
        ({"pictures": ["/0.png"]}, "images that are not its own"),
        ({"pictures": ["0.png", "1.png"]}, "images that are not its own"),
    ],
    ids=str,
)
def test_what_is_no_table_is_told(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    path = tmp_path / "eval_000001.json"
    sample_table("t", ["a"], None, {"main": [1.0]}).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(FileError, match=said):
        SampleTable.load(path)


def test_markdown_is_not_broken_by_texts() -> None:
    table = sample_table("t", ["a | b\nc"], ["d"], {"main": [math.nan]})
    *_, heads, rule, row = table.markdown().split("\n")
    assert heads == "| prompt | response | main |"
    assert rule == "|---|---|---|"
    assert row.startswith("| a \\| b c | d | ")
