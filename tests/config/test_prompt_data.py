"""The first rows of prompt files and data sets."""

import json
from pathlib import Path

import pytest

from rlfactory.config.prompt_data import dataset_head, nearest_file, prompt_file_head

CHAT = {"prompt": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.txt", "a cat\n\na dog", None),
        ("a.jsonl", '{"prompt": "a cat", "tag": 1}\n', None),
        ("a.txt", " \n", "is empty"),
        ("a.csv", "prompt\na cat", "is neither .txt nor .jsonl"),
        ("a.jsonl", "{}\n", "no object with a `prompt` in line 1"),
        (
            "a.jsonl",
            '{"prompt": "x"}\n{"text": "y"}\n',
            "with `messages`; its keys are text",
        ),
        ("a.jsonl", '{"prompt": "x"}\nnothing', "is no JSON in line 2"),
        ("a.jsonl", json.dumps(CHAT), None),
        ("a.jsonl", '{"prompt": 3}', "`prompt` must be a text or a list of messages; it is 3"),
    ],
)
def test_files_of_prompts(tmp_path: Path, name: str, content: str, fault: str | None) -> None:
    (tmp_path / name).write_text(content)
    found = prompt_file_head(tmp_path / name)
    assert (found.fault is None) == (fault is None)
    assert (fault or "") in (found.fault or "")


def test_rows_and_columns_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a cat\n\na dog")
    (tmp_path / "a.jsonl").write_text('{"prompt": "a cat", "tag": 1}\n')
    texts, rows = (prompt_file_head(tmp_path / name) for name in ("a.txt", "a.jsonl"))
    assert texts.rows == ({"prompt": "a cat"}, {"prompt": "a dog"})
    assert texts.columns == ("prompt",)
    assert rows.columns == ("prompt", "tag")


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "a cat"}')
    assert prompt_file_head(path).columns == ("prompt",)
    path.write_text('{"prompt": "a cat", "answer": "4"}')
    assert prompt_file_head(path).columns == ("prompt", "answer")


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", "text,label\na cat,1\n", ("text", "label")),
        ("a.json", '[{"prompt": "a cat", "n": 1}, {"prompt": "b"}]', ("prompt", "n")),
        ("a.json", '[\n  {"prompt": "a cat"}]', ("prompt",)),
        ("a.jsonl", '{"q": "two plus two"}\n{"q": "x"}\n', ("q",)),
        ("a.parquet", "PAR1....", None),
    ],
)
def test_columns_of_data_sets(
    tmp_path: Path, name: str, content: str, columns: tuple[str, ...] | None
) -> None:
    (tmp_path / name).write_text(content)
    found = dataset_head(tmp_path / name, "train")
    assert found.fault is None
    assert found.columns == columns


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.txt", "a cat", "prompts=file reads it"),
        ("a.parquet", "a cat", "is no Parquet file"),
        ("a.json", "", "is empty"),
        ("a.json", "a cat", "holds no JSON object"),
        ("a.jsonl", '"a cat"', "holds no JSON object"),
    ],
)
def test_data_sets_that_are_none(tmp_path: Path, name: str, content: str, fault: str) -> None:
    (tmp_path / name).write_text(content)
    assert fault in (dataset_head(tmp_path / name, "train").fault or "")


@pytest.mark.parametrize("place", ["", "train"])
def test_columns_of_a_saved_data_set(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(exist_ok=True)
    info = tmp_path / place / "dataset_info.json"
    info.write_text('{"features": {"caption": {}, "score": {}}}')
    assert dataset_head(tmp_path, "train").columns == ("caption", "score")


def test_a_folder_of_data_files_says_nothing(tmp_path: Path) -> None:
    assert dataset_head(tmp_path, "train").columns is None


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
