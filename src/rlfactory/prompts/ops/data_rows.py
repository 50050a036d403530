"""Rows of data files: .txt, .jsonl, .json, .csv, .tsv and .parquet; of texts also with .gz."""

import codecs
import csv
import gzip
import io
import json
import math
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlfactory.utils.errors import PromptError

PICTURES = (".png", ".jpg", ".jpeg", ".webp")
TEXT_KINDS = (".txt", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
Row = Mapping[str, Any]
Placed = tuple[str, Row]
"""A row, with its place for messages: the file and the line, or the number of the row."""

csv.field_size_limit(sys.maxsize)


def kind_of(path: Path) -> str:
    """The suffix that says a file's format, in lower case; `.gz` behind it says nothing of it."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def folder_of_data(path: str) -> Path:
    """The folder that paths of pictures in data are relative to: of their file, or they are in."""
    local = Path(hub_words(str(Path(path).expanduser()))[0])
    return local.parent if local.is_file() else local if local.is_dir() else Path()


def hub_words(path: str) -> list[str]:
    """A hub id or its folder on the disk, and its part where one is named, as in
    `openai/gsm8k/main`.
    """
    first, *others = path.split("/")
    is_id = len(others) == 2 and not os.path.exists(first or "/")
    is_file = os.path.exists(path) or kind_of(Path(path)) in (*TEXT_KINDS, ".parquet")
    is_copy = others and not is_file and os.path.isfile(Path(path).parent / "README.md")
    return path.rsplit("/", 1) if is_id or is_copy else [path]


def data_rows(path: Path, most: int | None = None) -> list[Placed]:
    """The rows of a file of texts, of `TEXT_KINDS`, without blank lines; of its first `most`
    characters, to the end of a line.

    PromptError where it can't be read, is empty, or is not what its suffix says.
    """
    kind = kind_of(path)
    if kind not in TEXT_KINDS:
        raise PromptError(f"{path}: rows are read from {', '.join(TEXT_KINDS)}, not from {kind!r}")
    text = _text(path, None if kind == ".json" else most)
    if not text.strip():
        raise PromptError(f"{path}: no prompts; the file is empty")
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise PromptError(
            f"{path}:{line}: has a NUL character; remove it, or convert what is UTF-16 or UTF-32:"
            f" iconv -f UTF-16LE -t UTF-8 {path.name} > NEW"
        )
    if kind == ".json":
        return _of_json(text, path, most)
    if kind in (".csv", ".tsv"):
        is_cut = most is not None and len(text) >= most
        return [*_of_table(text, path, "\t" if kind == ".tsv" else None, is_cut)]
    broken = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n\ufeff", "\n")
    lines = ((n, line.strip()) for n, line in enumerate(broken.split("\n"), 1) if line.strip())
    if kind == ".txt":
        return [(f"{path}:{number}", {"prompt": line}) for number, line in lines]
    return [_of_line(line, f"{path}:{number}") for number, line in lines]


def folder_fault(folder: Path) -> str | None:
    """Why a folder of data files can't be read: it has none, or of several kinds, of which
    `datasets` reads one, of pictures without `metadata` too. None where they can, or a README.md
    may say how, or it was saved by `datasets`.
    """
    files = [*folder.rglob("*")]
    names = {file.name for file in files} - {"dataset_infos.json"}
    if names & {"README.md", "state.json", "dataset_dict.json"}:
        return None
    if not files:
        return "is a folder without files"
    tables = [f for f in files if f.name in names and kind_of(f) in (*TEXT_KINDS[1:], ".parquet")]
    kinds = sorted({*map(kind_of, tables)})
    if len(kinds) > 1:
        several = f"holds files of {' and '.join(kinds)}, and one kind is read"
        return f"{several}; type a pattern, as {folder}/*{kinds[0]}"
    pictures = sum(kind_of(file) in PICTURES for file in files)
    if tables and pictures >= len(tables) and not any(n.startswith("metadata.") for n in names):
        return f"holds pictures and {min(tables).name}, and one kind is read; type {min(tables)}"
    return None


def parquet_rows(path: Path, most: int, size: int) -> tuple[list[Placed], list[str], int]:
    """The first rows of a .parquet file, at most about `size` bytes of them, the names of its
    columns, and how many rows it has.

    No rows where a column holds bytes, as of images. PromptError where it is no such file.
    """
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    try:
        with pq.ParquetFile(path) as file:
            schema, count = file.schema_arrow, file.metadata.num_rows
            if any("binary" in str(kind) for kind in schema.types):
                return [], schema.names, count
            rows: list[Row] = []
            for batch in file.iter_batches(batch_size=min(most, 100)):
                rows += batch.to_pylist()
                size -= batch.nbytes
                if len(rows) >= most or size <= 0:
                    break
    except (pa.ArrowException, OSError) as error:
        raise PromptError(f"{path}: is no Parquet file ({str(error).splitlines()[0]})") from error
    if count == 0:
        raise PromptError(f"{path}: no prompts; it has no rows")
    return [(f"{path}: row {n}", row) for n, row in enumerate(rows, 1)], schema.names, count


def _text(path: Path, most: int | None) -> str:
    try:
        with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
            # spreadsheets write UTF-16 as "Unicode text"
            is_wide = file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            text = io.TextIOWrapper(file, "utf-16" if is_wide else "utf-8-sig", newline="")
            return text.read() if most is None else text.read(most) + text.readline()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise PromptError(f"{path}: cannot read prompts: {reason}") from error
    except UnicodeDecodeError as error:
        if most is not None:  # only of a whole file is the place known
            return _text(path, None)
        line = error.object[: error.start].count(b"\n") + 1
        raise PromptError(
            f"{path}:{line}: not UTF-8 ({error.reason}); save as UTF-8, or convert it:"
            f" iconv -f WINDOWS-1252 -t UTF-8 {path.name} > NEW"
        ) from error


def _of_line(line: str, where: str) -> Placed:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise PromptError(f"{where}: a line must be a JSON object, not {type(value).__name__}")
    return where, value


def _of_json(text: str, path: Path, most: int | None) -> list[Placed]:
    """A list of objects or texts, alone or as the only list of an object; or an object a line. Of a
    list alone those that begin in its first `most` characters.
    """
    try:
        value: Any = json.loads(text) if most is None else _beginning(text, most)
    except (ValueError, RecursionError) as error:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) > 1 and lines[0].strip().endswith("}"):  # .jsonl by another name
            return [_of_line(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
        raise PromptError(f"{path}: not JSON: {error}") from error
    if (columns := _columns(value)) is not None:
        value = columns
    elif isinstance(value, dict):
        lists = [v for v in value.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
        is_row = {"prompt", "messages", "conversations"} & value.keys()
        value = [value] if is_row or len(lists) != 1 else lists[0]
    if not isinstance(value, list):
        raise PromptError(f"{path}: holds {value!r:.40}; it must hold a list of objects or texts")
    if not value:
        raise PromptError(f"{path}: no prompts; the file is empty")
    rows = [{"prompt": row} if isinstance(row, str) else row for row in value]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise PromptError(f"{path}: row {number} must be an object, not {type(row).__name__}")
    return [(f"{path}: row {number}", row) for number, row in enumerate(rows, 1)]


def _beginning(text: str, most: int) -> Any:
    """The items of a list of JSON that begin in its first `most` characters; all of another value.
    ValueError where it is no JSON.
    """
    start = re.match(r"\s*\[\s*", text)
    if start is None or len(text) <= most:
        return json.loads(text)
    items, at = list[Any](), start.end()
    while at < most and text[at] != "]":
        item, at = json.JSONDecoder().raw_decode(text, at)
        items.append(item)
        while text[at : at + 1].isspace() or text[at : at + 1] == ",":
            at += 1
    return items


def _columns(value: Any) -> list[Row] | None:
    """The rows of an object of columns: lists of one length, or pandas' objects by row number."""
    if not isinstance(value, dict):
        return None
    columns = [
        [*v.values()] if isinstance(v, dict) and all(map(str.isdigit, v)) else v
        for v in value.values()
    ]
    if not all(isinstance(c, list) and c and not isinstance(c[0], dict) for c in columns):
        return None
    if len({len(column) for column in columns}) != 1:
        return None
    return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]


def _of_table(text: str, path: Path, delimiter: str | None, is_cut: bool) -> Iterator[Placed]:
    """Rows of a table whose first line names the columns; cells that are empty are None. A last
    row that is not closed is left out of a text that `is_cut`.
    """
    try:
        named = re.match(r"sep=(.)\r?\n", text)  # a first line for Excel
        delimiter = named[1] if named else delimiter
        if delimiter is None:  # that which gives most columns
            first = [next(csv.reader(io.StringIO(text, newline=""), delimiter=d)) for d in ",;\t|"]
            delimiter = ",;\t|"[max(range(4), key=lambda i: len(first[i]))]
        source = io.StringIO(text, newline="")
        reader = csv.reader(source, delimiter=delimiter, strict=True)
        if named:
            next(reader)
        names = [name.strip() or f"column {n}" for n, name in enumerate(next(reader), 1)]
        lines, cells, start = [], [], reader.line_num + 1
        for row in reader:
            if row:
                lines.append(start)
                cells.append(row)
            start = reader.line_num + 1
    except csv.Error as error:
        if not (is_cut and lines) or source.read():
            raise PromptError(
                f"{path}:{reader.line_num}: not CSV: {error}; a cell with quotes or line breaks"
                ' stands in double quotes, and a quote inside it is doubled: "say ""hi"""'
            ) from error
    if not lines:
        raise PromptError(f"{path}: no prompts; it has a line of column names alone")
    if twice := [name for name in names if names.count(name) > 1]:
        raise PromptError(f"{path}:1: two columns are called {twice[0]!r}; rename one")
    for line, row in zip(lines, cells, strict=True):
        if len(row) > len(names):
            raise PromptError(
                f"{path}:{line}: {len(row)} cells for {len(names)} columns; a cell with a"
                f" {delimiter!r} in it stands in double quotes"
            )
    filled = [[*row, *[""] * (len(names) - len(row))] for row in cells]
    columns = [_typed(column) for column in zip(*filled, strict=True)] if filled else []
    for line, values in zip(lines, zip(*columns, strict=True), strict=True):
        yield f"{path}:{line}", dict(zip(names, values, strict=True))


def _typed(column: Iterable[str]) -> list[Any]:
    """Cells as numbers or booleans where all of a column are written as Python writes them, so that
    none loses a digit; else as texts.
    """
    cells = [cell if cell.strip() else None for cell in column]
    for read in (int, float, {"True": True, "False": False}.__getitem__):
        try:
            values = [None if cell is None else read(cell) for cell in cells]
        except (ValueError, KeyError):
            continue
        pairs = zip(cells, values, strict=True)
        if all(v is None or (str(v) == cell and math.isfinite(v)) for cell, v in pairs):
            return values
    return [*cells]
