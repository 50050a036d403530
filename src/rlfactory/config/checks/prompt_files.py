"""Rules on files and data sets of prompts: they are there, and hold what the choices read."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.problems import Problem, closest
from rlfactory.config.prompt_data import (
    DATA_SUFFIXES,
    Head,
    as_read,
    dataset_head,
    nearest_file,
    prompt_file_head,
)
from rlfactory.prompts.ops.chat import COMPLETION, MESSAGES

DOWNLOADS: Mapping[str, str] = {
    "hpdv2/train.json": (
        "hf download ymhao/HPDv2 train.json --repo-type dataset --local-dir hpdv2"
    ),
}
"""Paths of options whose file is to be downloaded first, with the command that does it."""
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def require_readable_prompts(config: Config, traits: Traits) -> Iterator[Problem]:
    """A prompt file exists, is UTF-8 text in a known format, and is not empty."""
    for name in traits["prompts"].get("prompt_files", ()):
        value = config["prompts"].get(name)
        head = prompt_file_head(_path(value)) if isinstance(value, str) else Head()
        if head.fault:
            key = f"prompts.{name}"
            yield Problem(key, f"{value} {head.fault}", _file_fix(key, value))


def _file_fix(key: str, value: str) -> str:
    path = _path(value)
    if key == "prompts.eval_path" and os.path.exists(path):
        return "prompts.eval_path=null"
    is_data = path.suffix in (".parquet", ".json", ".csv") and os.path.isfile(path)
    if is_data or (is_hub_id(value) and not os.path.exists(path)):
        return "prompts=datasets"
    near = None if os.path.exists(path) else nearest_file(path)
    return f"{key}={near}" if near else ""


def require_dataset_columns(config: Config, traits: Traits) -> Iterator[Problem]:
    """A local data set exists, and has the column of prompts: texts, or lists of messages."""
    node = config["prompts"]
    value, column = node.get("path"), node.get("column")
    if not isinstance(value, str) or not isinstance(column, str):
        return
    path = _path(value)
    if not os.path.exists(path):
        if not is_hub_id(value) or (path.suffix in DATA_SUFFIXES and value not in DOWNLOADS):
            near = nearest_file(path)
            hint = f". Did you mean {near}?" if near else "; allowed are a file, a folder, a hub id"
            fix = f"prompts.path={near}" if near else ""
            yield Problem("prompts.path", f"there is no {value}{hint}", fix)
        return
    head = dataset_head(path, str(node.get("split", "train")))
    if head.fault:
        fix = "prompts=file" if path.suffix == ".txt" else ""
        yield Problem("prompts.path", f"{value} {head.fault}", fix)
    elif head.columns is not None and column not in head.columns:
        fitting = [name for name in head.columns if _prompt_fault(head, name) is None]
        fitting.sort(key=lambda name: name != MESSAGES)
        guess = closest(column, fitting) or next(iter(fitting), None)
        message = f"{value} has no column {column}; it has {', '.join(head.columns) or 'none'}"
        yield Problem("prompts.column", message, f"prompts.column={guess}" if guess else "")
    elif fault := _prompt_fault(head, column):
        yield Problem("prompts.column", f"is {column}, which in the first row of {value} {fault}")


def _prompt_fault(head: Head, column: str) -> str | None:
    """Why a column of the first row is no prompt; None if it is one, or isn't known."""
    try:
        _ = [as_read(row, column) for row in head.rows[:1]]
    except ValueError as error:
        return str(error)
    return None


def undownloaded_prompts(config: Config) -> Iterator[Problem]:
    """The problem of prompts whose published file has not been downloaded into this folder.

    A note of the plan, and an error where a run starts: a preset can be planned without its data.
    """
    path = config["prompts"].get("path")
    if path in DOWNLOADS and not os.path.exists(path):
        message = f"{path} is not here; type {DOWNLOADS[path]}, or name a file of your own"
        yield Problem("prompts.path", message, "prompts=preferences")


def known_rows(config: Config, traits: Traits) -> Head | None:
    """The first rows of local prompts; None where they can't be read, or come from elsewhere."""
    node = config["prompts"]
    value = node.get("path")
    if not isinstance(value, str) or not os.path.isfile(_path(value)):
        return None
    if "path" in traits["prompts"].get("prompt_files", ()):
        head = prompt_file_head(_path(value))
    elif isinstance(node.get("column"), str):
        head = _with_prompts(dataset_head(_path(value), str(node.get("split", "train"))), node)
    else:
        return None
    return None if head.fault or head.columns is None else head


def _with_prompts(head: Head, node: Mapping[str, Any]) -> Head:
    """The rows of a data set as a run reads them; as they are where one has no prompt."""
    column = node["column"]
    if head.fault or head.columns is None or _prompt_fault(head, column):
        return head
    rows = tuple(as_read(row, column, column) for row in head.rows)
    found = {**dict.fromkeys(head.columns), **dict.fromkeys(rows[0] if rows else ())}
    if column == MESSAGES and not rows:  # whether they end with an answer is not known here
        found[COMPLETION] = None
    return Head(None, rows, tuple(found))


def is_hub_id(value: str) -> bool:
    """Whether a path that is not here has the form OWNER/NAME."""
    return _HUB_ID.fullmatch(value) is not None


def _path(value: str) -> Path:
    return Path(value).expanduser()
