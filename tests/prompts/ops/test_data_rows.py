"""Rows of data files."""

import gzip
from pathlib import Path

import pytest

from rlfactory.prompts.ops.data_rows import data_rows, folder_fault, kind_of
from rlfactory.utils.errors import PromptError


def rows(path: Path, text: str | bytes) -> list[dict[str, object]]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [dict(row) for _, row in data_rows(path)]


def test_cells_are_numbers_where_no_digit_is_lost(tmp_path: Path) -> None:
    text = "a,b,c,d,e\n1,007,1.5,True,nan\n,8,2.25,False,1\n"
    assert rows(tmp_path / "a.csv", text) == [
        {"a": 1, "b": "007", "c": 1.5, "d": True, "e": "nan"},
        {"a": None, "b": "8", "c": 2.25, "d": False, "e": "1"},
    ]
    assert rows(tmp_path / "b.csv", "a\n1.10\n2.00\n") == [{"a": "1.10"}, {"a": "2.00"}]
    assert rows(tmp_path / "c.csv", "a\nNone\nNA\n") == [{"a": "None"}, {"a": "NA"}]


def test_places_are_lines_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a,b\n"one\ntwo",1\n\nthree,2\n')
    assert [where for where, _ in data_rows(path)] == [f"{path}:2", f"{path}:5"]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_delimiters(mark: str, tmp_path: Path) -> None:
    text = f'prompt{mark}answer\n"a, b; c"{mark}4\n'
    assert rows(tmp_path / "a.csv", text) == [{"prompt": "a, b; c", "answer": 4}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["a", "b"]', ["a", "b"]),
        ('{"prompt": "a"}', ["a"]),
        ('{"prompt": "a"}\n{"prompt": "b"}\n', ["a", "b"]),
        ('{"n": 2, "rows": [{"prompt": "a"}]}', ["a"]),
    ],
)
def test_shapes_of_json(text: str, expected: list[str], tmp_path: Path) -> None:
    assert [row["prompt"] for row in rows(tmp_path / "a.json", text)] == expected


def test_encodings_and_compression(tmp_path: Path) -> None:
    text = "prompt,n\nfür,1\n"
    expected = [{"prompt": "für", "n": 1}]
    assert rows(tmp_path / "a.csv", text.encode("utf-8-sig")) == expected
    assert rows(tmp_path / "b.csv", text.encode("utf-16")) == expected
    assert rows(tmp_path / "c.csv.gz", gzip.compress(text.encode())) == expected
    assert kind_of(Path("a.JSONL.gz")) == ".jsonl"


def test_a_part_of_a_file_ends_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("eins\nzwei\ndrei\n")
    assert [row["prompt"] for _, row in data_rows(path, 7)] == ["eins", "zwei"]
    for encoding in ("utf-16-le", "utf-16-be"):  # Ċ and ਊ have the byte of a line's end
        path.write_bytes("\ufeffeinsĊਊ\nzweiĊਊ\ndreiĊਊ\n".encode(encoding))
        for most in range(1, 12):
            read = [row["prompt"] for _, row in data_rows(path, most)]
            assert read == ["einsĊਊ", "zweiĊਊ", "dreiĊਊ"][: len(read)]


def test_a_part_of_a_table_ends_with_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('prompt,n\n"one\ntwo",1\n"three\nfour\nfive",2\nsix,3\n')
    read = [data_rows(path, most) for most in range(20, 45)]
    assert {len(placed) for placed in read} == {1, 2, 3}
    assert all(placed == data_rows(path)[: len(placed)] for placed in read)
    path.write_text('prompt,n\n"one",1\ntwo "x",2\n"three" x,3\nfour,4\n')
    with pytest.raises(PromptError, match=r"a.csv:4: not CSV"):
        data_rows(path, 42)


def test_lines_end_as_other_systems_write_them(tmp_path: Path) -> None:
    assert [row["prompt"] for row in rows(tmp_path / "a.txt", "a\rb\r\nc\n")] == ["a", "b", "c"]
    joined = "\ufeff".join(["", '{"a": 1}\r\n', '{"a": 2}\r\n'])  # by `cat`
    assert rows(tmp_path / "a.jsonl", joined) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", b"a,b\n\xe9,1\n", r"a.csv:2: not UTF-8.*iconv -f WINDOWS-1252"),
        ("a.txt", "a\nb".encode("utf-16-be"), r"a.txt:1: has a NUL character.*UTF-16"),
        ("a.csv", "a,b\n1,2,3\n", r"a.csv:2: 3 cells for 2 columns"),
        ("a.csv", 'a,b\n"x\n', r"a.csv:2: not CSV: unexpected end"),
        ("a.csv.gz", b"nothing", "cannot read prompts"),
        ("a.json", "3", "holds 3; it must hold a list"),
        ("a.json", "[1]", "row 1 must be an object, not int"),
        ("a.jsonl", "[" * 100_000, "not JSON"),
    ],
)
def test_files_that_are_refused(name: str, text: str | bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=said):
        rows(tmp_path / name, text)


def test_a_table_beside_pictures_is_to_be_named(tmp_path: Path) -> None:
    (tmp_path / "img").mkdir()
    for name in ("rows.jsonl", "img/0.png"):
        (tmp_path / name).touch()
    table = tmp_path / "rows.jsonl"
    assert f"one kind is read; type {table}" in str(folder_fault(tmp_path))
    table.rename(tmp_path / "metadata.jsonl")  # that of the pictures, as `datasets` knows it
    assert folder_fault(tmp_path) is None
