"""The first rows of a local file or data set of prompts, read without the `datasets` library, and
how many prompts there are.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlfactory.config.problems import closest
from rlfactory.model.pipelines.local_models import read_json
from rlfactory.prompts.ops.data_rows import (
    TEXT_KINDS,
    Placed,
    data_rows,
    folder_of_data,
    kind_of,
    parquet_rows,
)
from rlfactory.prompts.ops.held_out import held_out_texts, sameness
from rlfactory.prompts.ops.row_forms import NoPromptError, is_left_out, read_row, same_form
from rlfactory.utils.errors import PromptError
from rlfactory.utils.live_objects import is_reference, resolve

CHECKED_LINES = 1000
"""Rows that rules look at, to be quick; a run reads them all."""
DATA_KINDS = (*TEXT_KINDS, ".parquet")
"""Files that `prompts=datasets` reads; `prompts=file` reads all but the last."""
READ_BYTES, READ_ROWS, READ_TABLE = 2**21, 10_000, 2**25
"""How much a plan reads: bytes of a file of texts; rows of a .parquet file, and their bytes."""


@dataclass(frozen=True, eq=False)  # the same while its file is
class Head:
    """The beginning of a file of prompts, as a run reads it.

    Attributes:
        fault: what is wrong with it, None if nothing is.
        placed: its first rows with their places; the prompt is under the column that is read.
        columns: the names of its columns; None if they can't be read here.
        is_whole: whether these are all rows.
        left_out: how many more there are that lack what they must have.
        empty: the column that is empty where that is the fault.
        lacks: whether the fault is that there is no column of prompts.
        column: that of the prompts.
    """

    fault: str | None = None
    placed: tuple[Placed, ...] = ()
    columns: tuple[str, ...] | None = None
    is_whole: bool = False
    left_out: int = 0
    empty: str = ""
    lacks: bool = False
    column: str = "prompt"

    @property
    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """The rows that rules look at."""
        return tuple(row for _, row in self.placed[:CHECKED_LINES])

    @property
    def texts(self) -> list[Any]:
        """All prompts."""
        return [row[self.column] for _, row in self.placed]


def splits_of(path: Path) -> tuple[str, ...] | None:
    """The splits of a file, or of a folder that `datasets` saved; None of another folder."""
    if os.path.isfile(path) or (path / "state.json").is_file():
        return ("train",)
    splits = read_json(path / "dataset_dict.json").get("splits")
    return tuple(splits) if isinstance(splits, list) else None


def folder_of_prompts(config: Mapping[str, Any]) -> Path:
    """The folder that paths of pictures in the prompts are relative to."""
    path = config["prompts"].get("path")
    return folder_of_data(path) if isinstance(path, str) else Path()


def prompt_head(node: Mapping[str, Any], key: str = "path") -> Head:
    """The part that a plan reads of the file or folder that `prompts.KEY` names."""
    path, column = Path(node[key]).expanduser(), str(node.get("column", "prompt"))
    found = raw_head(path, str(node.get("split", "train")))
    if found.fault or not found.placed:
        return found
    return _as_read(path, column, tuple(node.get("skip_empty") or ()), _state(path))


@lru_cache(maxsize=16)  # several rules read it
def _as_read(path: Path, column: str, skip_empty: tuple[str, ...], state: object) -> Head:
    raw = _file_head(path, state)
    rows: list[Placed] = []
    form: str | None = None
    for where, row in raw.placed:
        if is_left_out(row, skip_empty):
            continue
        try:
            form = same_form(row, column, form)
            text, metadata = read_row(row, column)
        except ValueError as error:
            lacks, empty = isinstance(error, NoPromptError), getattr(error, "column", "")
            return replace(raw, fault=f"{where}: {error}", lacks=lacks, empty=empty)
        rows.append((where, {column: text, **metadata} | {column: text}))
    columns = dict.fromkeys(name for _, row in rows[:CHECKED_LINES] for name in row)
    left_out = len(raw.placed) - len(rows)
    return Head(None, tuple(rows), tuple(columns), raw.is_whole, left_out, column=column)


def raw_head(path: Path, split: str = "train") -> Head:
    """The first rows of a file as they are, or the columns of a folder that `datasets` saved."""
    if not os.path.isdir(path):
        return _file_head(path, _state(path))
    of_folder = (read_json(place / "dataset_info.json") for place in (path, path / split))
    features = [own["features"] for own in of_folder if isinstance(own.get("features"), dict)]
    return Head(columns=tuple(features[0])) if features else Head()


@lru_cache(maxsize=16)
def _file_head(path: Path, state: object) -> Head:
    try:
        if kind_of(path) == ".parquet":
            placed, columns, count = parquet_rows(path, READ_ROWS, READ_TABLE)
            return Head(None, tuple(placed), tuple(columns), len(placed) == count)
        placed = data_rows(path, READ_BYTES)
    except PromptError as error:
        near = None if state is not None else nearest_file(path)
        return Head(f"{error}{f'. Did you mean {near}?' if near else ''}")
    columns = list(dict.fromkeys(name for _, row in placed[:CHECKED_LINES] for name in row))
    is_cut = path.suffix == ".gz" or path.stat().st_size > READ_BYTES
    if is_cut and kind_of(path) == ".json":  # which may be read wholly
        placed = placed[:READ_ROWS]
    return Head(None, tuple(placed), tuple(columns), not is_cut)


@dataclass(frozen=True)
class Counts:
    """How many prompts a file has, as far as a plan tells them apart.

    Attributes:
        trained: different prompts to train on, None where only a run counts them.
        evaluated: prompts to evaluate on, all rows of them.
        shared: how many of these are trained on.
        left_out: rows that are left out, as a needed column is empty.
    """

    trained: int | None
    evaluated: int
    shared: int
    left_out: int


def counts_of(node: Mapping[str, Any]) -> Counts | None:
    """The prompts of a local file, split as a run splits them; None where only a run can say."""
    head, own = _whole_head(node, "path"), node.get("eval_path")
    found = head if own is None else _whole_head(node, "eval_path")
    if found is None or node.get("eval_split") not in (None, "train"):
        return None
    share = node.get("held_out_share") or 0.0
    return _counts(head, found, None if own is not None or node.get("eval_split") else share)


@lru_cache(maxsize=4)  # several rows of a plan say something of them
def _counts(head: Head | None, found: Head, share: float | None) -> Counts:
    texts = found.texts
    if share is None:
        trained = {*map(sameness, head.texts if head else ())}
        shared = sum(sameness(text) in trained for text in texts)
        left_out = found.left_out + (head.left_out if head and head is not found else 0)
        return Counts(len(trained) if head else None, len(texts), shared, left_out)
    chosen = held_out_texts(texts, share)
    trained = {sameness(text) for text in texts if text not in chosen}
    if not chosen:
        return Counts(len(trained), len(texts), len(texts), found.left_out)
    return Counts(len(trained), sum(text in chosen for text in texts), 0, found.left_out)


def _whole_head(node: Mapping[str, Any], key: str) -> Head | None:
    file = Path(str(node.get(key) or "")).expanduser()
    if "held_out_share" not in node or not os.path.isfile(file):
        return None
    head = prompt_head(node, key)
    return head if head.is_whole and not head.fault else None


def set_counts(config: Mapping[str, Any]) -> dict[str, int]:
    """How many prompts of each further prompt set an evaluation takes, at most."""
    sets, default = config["eval_sets"], config["evaluation"]["prompts"]
    counts = {}
    for name in sets["of"]:
        wanted = sets["counts"].get(name, default)
        available = available_prompts({"prompts": sets["parts"][name]})
        counts[name] = wanted if available is None else min(wanted, available)
    return counts


def available_prompts(config: Mapping[str, Any]) -> int | None:
    """How many prompts there are to evaluate on; None where only the source knows."""
    node = config["prompts"]
    if is_reference(node["_target_"]):
        listed = getattr(resolve(node["_target_"]), "eval_prompts", None)
        return None if listed is None else len(listed)
    counts = counts_of(node)
    return None if counts is None else counts.evaluated


SAME_FILE = 0.75
"""Similarity from which on a name is a misspelling: `a.txt` and `names.txt`, which share little but
the suffix, have 0.71."""


def nearest_file(path: Path) -> Path | None:
    """The file in the same folder whose name is most like that of a missing one."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(entry.name for entry in os.scandir(path.parent) if entry.is_file())
    found = closest(path.name, names, SAME_FILE)
    return None if found in (None, path.name) else path.with_name(str(found))


def _state(path: Path) -> tuple[int, int] | None:
    """A value that changes when a file does; None where there is none."""
    with suppress(OSError):
        stat = path.stat()
        return stat.st_mtime_ns, stat.st_size
    return None
