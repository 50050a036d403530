"""Files of values that are damaged or hostile: one error each, that names the file."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest

from rlfactory.utils.data_files import (
    DEEPEST,
    FileError,
    mismatch,
    parse_json,
    parse_yaml,
    read_json,
    read_shown,
    read_text,
    read_yaml,
)

FILE = Path("some/file")
BOMB = "\n".join(
    ["a0: &a0 [1, 1, 1]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))]
)
NO_YAML = {
    "an alias bomb": BOMB,
    "a merge bomb": "a: &a {b: 1}\nc: {<<: [*a, *a]}",
    "a cycle": "a: &a [*a]",
    "a cyclic mapping": "&a {b: *a}",
    "deep lists": "[" * 100_000,
    "deep blocks": "- " * 100_000,
    "deep keys": "? " * 100_000,
    "a date": "a: 2001-01-01",
    "no date": "a: 2001-99-99",
    "a set": "!!set {a}",
    "a key that is no text": "{1: 2}",
    "a key that is a list": "{[a]: b}",
    "an unknown alias": "*a",
    "an unknown tag": "!x y",
    "a Python object": "!!python/object/apply:os.system [true]",
    "no base64": "!!binary x",
    "no boolean": "!!bool x",
    "no time": "!!timestamp x",
    "no number": "!!int ''",
    "a long number": "1" * 5000,
    "a null byte": "a\0b",
    "an open list": "a: [1, 2",
}


@pytest.mark.parametrize("text", NO_YAML.values(), ids=NO_YAML.keys())
def test_yaml_that_is_not_plain_is_refused_at_once(text: str) -> None:
    with pytest.raises(FileError, match=r"^some/file: .*; do this") as caught:
        parse_yaml(text, FILE, remedy="do this")
    assert len(str(caught.value)) < 400


def test_the_line_is_named() -> None:
    with pytest.raises(FileError, match="line 3 can't be read"):
        parse_yaml("a: 1\nb: 2\n]", FILE)
    with pytest.raises(FileError, match="line 2 has more than"):
        parse_yaml(f"a: 1\nb: {'[' * 100}", FILE)
    with pytest.raises(FileError, match="line 2 is not JSON"):
        parse_json("{\n]", FILE)
    with pytest.raises(FileError, match="line 7 is not JSON"):
        parse_json("{", FILE, line=7)


def test_plain_yaml_with_aliases_is_read() -> None:
    assert parse_yaml("a: &a [1, x, null, 1.5, true]\nb: *a", FILE)["b"] == [
        1,
        "x",
        None,
        1.5,
        True,
    ]


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "[" * 100 + "]" * 100, '"\\ud800"', "1" * 5000, str(2**70)]
)
def test_json_that_is_not_plain_is_refused(text: str) -> None:
    with pytest.raises(FileError, match="^some/file: "):
        parse_json(text, FILE)


def test_as_deep_as_allowed() -> None:
    text = "[" * DEEPEST + "]" * DEEPEST
    assert parse_json(text, FILE) == parse_yaml(text, FILE)


def _lies_there(path: Path, kind: str) -> None:
    match kind:
        case "a folder":
            path.mkdir()
        case "a pipe":
            os.mkfifo(path)
        case "a link to nothing":
            path.symlink_to("nowhere")
        case "a link to itself":
            path.symlink_to(path.name)
        case "a device":
            path.symlink_to("/dev/zero")
        case "no UTF-8":
            path.write_bytes(b"{}\n\xff")
        case "large":
            path.touch()
            os.truncate(path, 2**40)


@pytest.mark.parametrize(
    "kind",
    [
        "a folder",
        "a pipe",
        "a link to nothing",
        "a link to itself",
        "a device",
        "no UTF-8",
        "large",
    ],
)
def test_what_is_no_file_is_told_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "values.json"
    _lies_there(path, kind)
    began = time.monotonic()
    for read in (read_text, read_json, read_yaml):
        with pytest.raises(FileError, match="values.json: ") as caught:
            read(path)
    assert time.monotonic() - began < 30
    assert ("line 2 is not UTF-8" in str(caught.value)) == (kind == "no UTF-8")
    assert read_shown(path) == ("{}\n\ufffd" if kind == "no UTF-8" else "")


def test_nothing_there_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "x.json")


class Inner(TypedDict):
    """A mapping inside another."""

    size: int


class Outer(TypedDict):
    """A mapping with a mapping inside."""

    name: str
    parts: dict[str, Inner]
    scores: NotRequired[list[float | None]]


@dataclass(frozen=True)
class Made:
    """What a mapping makes."""

    name: str
    size: int = 0


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        ({"name": "a", "parts": {"b": {"size": 1}}, "other": 3}, Outer, ""),
        ({"name": "a", "parts": {"b": {}}}, Outer, "parts.b.size is missing"),
        ({"name": "a", "parts": {"b": {"size": True}}}, Outer, "parts.b.size is True, not a whole"),
        ({"name": "a", "parts": {}, "scores": [1, None, "x"]}, Outer, "scores.2 is 'x', not"),
        ({"name": "a", "parts": {}, "scores": [float("inf")]}, Outer, "scores.0 is inf, not"),
        ({"parts": {}}, Outer, "name is missing"),
        ([], Outer, "its content is [], not a mapping"),
        (["a", 1], list[str], "1 is 1, not text"),
        ("\x1b[31m", int, r"its content is '\x1b[31m', not a whole number"),
        ({"name": "a"}, Made, ""),
        ({"name": "a", "sise": 1}, Made, "sise is no key of it"),
        ({"size": 1}, Made, "name is missing"),
    ],
)
def test_what_is_of_another_kind_is_named_with_its_place(value: Any, kind: Any, said: str) -> None:
    found = mismatch(value, kind)
    assert found.startswith(said)
    assert bool(found) == bool(said)
