"""The first rows of prompt files and data sets."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlfactory.config.prompt_data import Head, nearest_file, prompt_head, raw_head

CHAT = {"prompt": [{"role": "user", "content": "hi"}]}


def head(path: Path, **options: object) -> Head:
    return prompt_head({"path": str(path), **options})


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.txt", "a cat\n\na dog", None),
        ("a.jsonl", '{"prompt": "a cat", "tag": 1}\n', None),
        ("a.txt", " \n", "is empty"),
        ("a.csv", "prompt\na cat", None),
        ("a.doc", "prompt\na cat", "not from '.doc'"),
        ("a.jsonl", "{}\n", ":1: has no `prompt` and no `messages`; its keys are none"),
        ("a.jsonl", '{"prompt": "x"}\n{"text": "y"}\n', ":2: has no `prompt`.*keys are text"),
        ("a.jsonl", '{"prompt": "x"}\nnothing', ":2: not JSON"),
        ("a.jsonl", json.dumps(CHAT), None),
        ("a.jsonl", '{"prompt": 3}', "`prompt` must be a text or a list of messages; it is 3"),
        ("a.parquet", "a cat", "is no Parquet file"),
        ("a.json", "", "is empty"),
        ("a.json", "a cat", "not JSON"),
    ],
)
def test_files_of_prompts(tmp_path: Path, name: str, content: str, fault: str | None) -> None:
    (tmp_path / name).write_text(content)
    found = head(tmp_path / name)
    assert (found.fault is None) == (fault is None)
    assert re.search(fault or "", found.fault or "")


def test_rows_and_columns_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a cat\n\na dog")
    (tmp_path / "a.jsonl").write_text('{"prompt": "a cat", "tag": 1}\n')
    texts, rows = (head(tmp_path / name) for name in ("a.txt", "a.jsonl"))
    assert texts.rows == ({"prompt": "a cat"}, {"prompt": "a dog"})
    assert [where for where, _ in texts.placed] == [f"{tmp_path}/a.txt:{line}" for line in (1, 3)]
    assert texts.columns == ("prompt",)
    assert rows.columns == ("prompt", "tag")
    assert rows.is_whole


def test_rows_that_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("prompt,answer\na,1\n,2\nb,\nc,3\n")
    found = head(tmp_path / "a.csv", skip_empty=["prompt", "answer"])
    assert [row["prompt"] for row in found.rows] == ["a", "c"]
    assert found.left_out == 2
    assert head(tmp_path / "a.csv").empty == "prompt"


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "a cat"}')
    assert head(path).columns == ("prompt",)
    path.write_text('{"prompt": "a cat", "answer": "4"}')
    assert head(path).columns == ("prompt", "answer")


@pytest.mark.slow
def test_a_large_file_is_read_in_part(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a long prompt\n" * 200_000)
    found = head(tmp_path / "a.txt")
    assert 0 < len(found.placed) < 200_000
    assert {row["prompt"] for row in found.rows} == {"a long prompt"}
    assert not found.is_whole


@pytest.mark.parametrize("form", ["[%s]", '{"data": [%s]}'])
def test_a_large_json_file_is_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    rows = [{"prompt": f"a [{i}]", "n": [i]} for i in range(50)]
    path = tmp_path / "a.json"
    path.write_text(form % ",\n ".join(json.dumps(row) for row in rows))
    assert head(path).rows == tuple(rows)
    path.touch()  # not the one that was read
    monkeypatch.setattr("rlfactory.config.prompt_data.READ_BYTES", 100)
    monkeypatch.setattr("rlfactory.config.prompt_data.READ_ROWS", 3)
    found = head(path)
    assert (found.rows, found.is_whole) == (tuple(rows[:3]), False)
    path.write_text(path.read_text()[:80] + "x" * 90)
    assert "not JSON" in str(head(path).fault)


def test_long_rows_of_a_table_are_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"prompt": [str(i) * 1000 for i in range(1000)]})
    pq.write_table(rows, tmp_path / "a.parquet")
    assert head(tmp_path / "a.parquet").is_whole
    (tmp_path / "a.parquet").touch()  # not the one that was read
    monkeypatch.setattr("rlfactory.config.prompt_data.READ_TABLE", 10_000)
    found = head(tmp_path / "a.parquet")
    assert (len(found.placed), found.is_whole) == (100, False)


@pytest.mark.parametrize("place", ["", "train"])
def test_columns_of_a_saved_data_set(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(exist_ok=True)
    info = tmp_path / place / "dataset_info.json"
    info.write_text('{"features": {"caption": {}, "score": {}}}')
    assert raw_head(tmp_path, "train").columns == ("caption", "score")


def test_a_folder_of_data_files_says_nothing(tmp_path: Path) -> None:
    assert raw_head(tmp_path).columns is None


def test_the_nearest_file(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("a cat")
    assert nearest_file(tmp_path / "promts.txt") == tmp_path / "prompts.txt"
    assert nearest_file(tmp_path / "other.csv") is None
    assert nearest_file(tmp_path / "none" / "prompts.txt") is None


@pytest.mark.parametrize(("missing", "near"), [("promts.txt", "prompts.txt"), ("nosuch.txt", None)])
def test_a_file_that_shares_its_suffix_alone_is_not_suggested(
    missing: str, near: str | None, tmp_path: Path
) -> None:
    for name in ("prompts.txt", "o.txt", "names.txt"):
        (tmp_path / name).touch()
    assert nearest_file(tmp_path / missing) == (tmp_path / near if near else None)
