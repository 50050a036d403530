"""The first rows of a local file or data set of prompts, read without the `datasets` library."""

import csv
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlfactory.config.problems import closest
from rlfactory.prompts.ops.chat import prompt_key, read_prompt

CHECKED_LINES = 1000
"""Lines of a prompt file that a plan checks, to be quick; a run reads them all."""
DATA_SUFFIXES = (".parquet", ".json", ".jsonl", ".csv")
"""Files that `prompts=datasets` reads."""
HEAD = 2**20
"""Characters of a data file that are read for its first row."""


@dataclass(frozen=True)
class Head:
    """The beginning of a file of prompts.

    Attributes:
        fault: what is wrong with it, None if nothing is.
        rows: its first rows, those of a text file with their text under `prompt`.
        columns: the names of its columns; None if they can't be read here, as of a .parquet file.
    """

    fault: str | None = None
    rows: tuple[Mapping[str, Any], ...] = ()
    columns: tuple[str, ...] | None = None


def folder_of_prompts(config: Mapping[str, Any]) -> Path:
    """What paths of pictures in the prompts are relative to: the folder of their file."""
    path = config["prompts"].get("path")
    file = Path(path).expanduser() if isinstance(path, str) else Path()
    return file.parent if file.is_file() else Path()


def prompt_file_head(path: Path) -> Head:
    """The first rows of a file that `prompts=file` reads."""
    return _prompt_file_head(path, _state(path))


@lru_cache(maxsize=16)  # several rules read it
def _prompt_file_head(path: Path, state: object) -> Head:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        return Head(f"is not UTF-8 (byte {error.start})")
    except OSError as error:
        near = nearest_file(path)
        hint = f". Did you mean {near}?" if near else ""
        return Head(f"can't be read: {error.strerror}{hint}")
    if path.suffix not in (".txt", ".jsonl"):
        return Head("is neither .txt nor .jsonl")
    if not text.strip():
        return Head("is empty")
    lines = text.split("\n")[:CHECKED_LINES]
    if path.suffix == ".txt":
        return Head(None, tuple({"prompt": line} for line in lines if line.strip()), ("prompt",))
    return _json_lines(lines)


def _json_lines(lines: Sequence[str]) -> Head:
    rows: list[Mapping[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            return Head(f"is no JSON in line {number}: {error}")
        key = prompt_key(row) if isinstance(row, dict) else None
        if key is None:
            keys = f"; its keys are {', '.join(row)}" if isinstance(row, dict) else ""
            return Head(f"has no object with a `prompt` in line {number}, or with `messages`{keys}")
        try:
            rows.append(as_read(row, key))
        except ValueError as error:
            return Head(f"is no file of prompts: in line {number} `{key}` {error}")
    return Head(None, tuple(rows), tuple(rows[0]) if rows else ())


def dataset_head(path: Path, split: str) -> Head:
    """The first row of a file, or the columns of a folder, that `prompts=datasets` reads."""
    return _dataset_head(path, split, _state(path))


@lru_cache(maxsize=16)
def _dataset_head(path: Path, split: str, state: object) -> Head:
    if os.path.isdir(path):
        return _folder_head(path, split)
    if path.suffix not in DATA_SUFFIXES:
        hint = "; prompts=file reads it" if path.suffix == ".txt" else ""
        return Head(f"is none of {', '.join(DATA_SUFFIXES)}{hint}")
    try:
        with path.open("rb") as stream:
            start = stream.read(HEAD)
        if path.suffix == ".parquet":
            return Head() if start[:4] == b"PAR1" else Head("is no Parquet file")
        text = start.decode("utf-8-sig", errors="ignore")
    except OSError as error:
        return Head(f"can't be read: {error.strerror}")
    if not text.strip():
        return Head("is empty")
    if path.suffix == ".csv":
        names, *rows = [*csv.reader(text.splitlines()[:2])]
        return Head(None, tuple(dict(zip(names, row, strict=False)) for row in rows), tuple(names))
    try:
        row, _ = json.JSONDecoder().raw_decode(text.lstrip().removeprefix("[").lstrip())
    except ValueError:
        # an object larger than what was read is no fault
        return Head() if len(start) == HEAD else Head("holds no JSON object in its first line")
    if not isinstance(row, dict):
        return Head("holds no JSON object in its first line")
    return Head(None, (row,), tuple(row))


def _folder_head(path: Path, split: str) -> Head:
    """The columns of a folder that `Dataset.save_to_disk` wrote; of any other, nothing."""
    for folder in (path, path / split):
        try:
            info = json.loads((folder / "dataset_info.json").read_text(encoding="utf-8"))
            return Head(None, (), tuple(info["features"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return Head()


def as_read(row: Mapping[str, Any], key: str, name: str = "prompt") -> dict[str, Any]:
    """A row as a run reads it: the prompt under `name`, and its metadata.

    Raises:
        ValueError: under `key` is no prompt.
    """
    text, metadata = read_prompt(row, key)
    return {name: text, **metadata} | {name: text}


SAME_FILE = 0.75
"""Similarity from which on a name is a misspelling: `a.txt` and `names.txt`, which share little but
the suffix, have 0.71."""


def nearest_file(path: Path) -> Path | None:
    """The file in the same folder whose name is most like that of a missing one."""
    try:
        names = sorted(entry.name for entry in os.scandir(path.parent) if entry.is_file())
    except OSError:
        return None
    found = closest(path.name, names, SAME_FILE)
    return None if found is None or found == path.name else path.with_name(found)


def _state(path: Path) -> tuple[int, int] | None:
    """What changes when a file does."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
