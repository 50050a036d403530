"""Rules on files and data sets of prompts: they are there, and hold what the choices read; pictures
go with the model, and fit.
"""

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.named_models import is_hub_id
from rlfactory.config.problems import Problem, closest
from rlfactory.config.prompt_data import (
    DATA_KINDS,
    SAME_FILE,
    Head,
    nearest_file,
    prompt_head,
    raw_head,
    splits_of,
)
from rlfactory.config.words import typed_value
from rlfactory.model.pipelines.local_models import height_and_width
from rlfactory.prompts.ops.data_rows import (
    TEXT_KINDS,
    folder_fault,
    folder_of_data,
    hub_words,
    kind_of,
)
from rlfactory.prompts.ops.row_forms import CONVERSATIONS, PARTS, pair_columns

DOWNLOADS: Mapping[str, str] = {
    "hpdv2/train.json": "hf download ymhao/HPDv2 train.json --repo-type dataset --local-dir hpdv2"
}
"""Paths of options whose file is to be downloaded first, with the command that does it."""


def require_readable_prompts(config: Config, traits: Traits) -> Iterator[Problem]:
    """Files of prompts exist, are what their names say, and each row that a plan reads has a
    prompt: a text, or a list of messages.
    """
    node = config["prompts"]
    is_data_set, files = _is_data_set(node), traits.get("prompts", {}).get("prompt_files", ())
    for name in ("path", "eval_path") if is_data_set else files:
        value = node.get(name)
        if not isinstance(value, str) or (is_data_set and glob.has_magic(value)):
            continue
        problem = _missing_file(f"prompts.{name}", value, is_data_set)
        if problem or (is_data_set and not os.path.exists(_path(value))):
            yield from filter(None, [problem])  # a hub id is no problem
        elif fault := _fault(node, name, prompt_head(node, name)):
            yield fault


def require_splits(config: Config, traits: Traits) -> Iterator[Problem]:
    """A data set that is here has the splits that are named; a file has none but `train`."""
    node = config["prompts"]
    if not _is_data_set(node):
        return
    of_eval = "path" if node.get("eval_path") is None else "eval_path"
    for key, name in (("split", "path"), ("eval_split", of_eval)):
        split, path = node.get(key), _path(node[name])
        names = splits_of(path) if isinstance(split, str) and os.path.exists(path) else None
        if names is None or split in names:
            continue
        is_plain = names == ("train",)
        has = "no splits" if is_plain else f"the splits {', '.join(names)}"
        near = None if is_plain else closest(str(split), names, 0)
        good = near or (names[0] if key == "split" else "null")
        message = f"is {split}, and {node[name]} has {has}; prompts.eval_path=FILE names further"
        yield Problem(f"prompts.{key}", f"{message} rows", f"prompts.{key}={good}")


def _is_data_set(node: Mapping[str, Any]) -> bool:
    """Whether prompts may come from hub ids and folders."""
    return isinstance(node.get("path"), str) and "split" in node


def _missing_file(key: str, value: str, is_data_set: bool) -> Problem | None:
    path = _path(value)
    if os.path.isdir(path) and is_data_set:
        fault = folder_fault(path)
        return Problem(key, f"{value} {fault}") if fault else None
    hub_id = hub_words(str(path))[0] if is_data_set else value
    if os.path.isfile(path) or (is_data_set and os.path.isdir(hub_id)):  # a part of a copy
        return None
    is_preset = kind_of(path) not in DATA_KINDS or value in DOWNLOADS
    if is_preset and is_hub_id(hub_id) and not os.path.exists(path):
        message = f"there is no file {value}"
        return None if is_data_set else Problem(key, message, "prompts=datasets")
    if os.path.isdir(path):
        return Problem(key, f"{value} is a folder, and not a file", "prompts=datasets")
    near = nearest_file(path)
    allowed = "a file, a folder, a hub id" if is_data_set else ", ".join(TEXT_KINDS)
    hint = f". Did you mean {near}?" if near else f"; allowed are {allowed}"
    return Problem(key, f"there is no {value}{hint}", f"{key}={typed_value(near)}" if near else "")


def _fault(node: Mapping[str, Any], name: str, head: Head) -> Problem | None:
    """The fault of a file that is there."""
    key, value, column = f"prompts.{name}", node[name], str(node.get("column", "prompt"))
    if kind_of(_path(value)) == ".parquet" and not _is_data_set(node):
        return Problem(key, f"{value} is no file of texts", "prompts=datasets")
    names = head.columns
    has_form = column == "prompt" and head.placed and not head.lacks
    if names is not None and column not in names and not has_form:
        raw = raw_head(_path(value))
        first = raw.rows[0] if raw.rows else {}
        guess = _prompt_column(first or dict.fromkeys(names), column, bool(first))
        if column == "prompt" and not first and {*PARTS} & {*names}:
            return None  # only the data can say
        message = f"{value} has no column {column}; it has {', '.join(names) or 'none'}"
        fix = f"prompts.column={typed_value(guess)}" if guess else ""
        return Problem("prompts.column", message, fix)
    if head.fault is None:
        return None
    is_skippable = head.empty and "skip_empty" in node
    columns = [*(node.get("skip_empty") or ()), head.empty]
    fix = f"prompts.skip_empty={typed_value(columns)}" if is_skippable else ""
    return Problem(key, head.fault, fix)


LIKELY = ("prompts", "question", "query", "instruction", "problem", "input", "text", "caption")
"""Names of columns that hold prompts, the likeliest first."""


def _prompt_column(first: Mapping[str, Any], column: str, is_row: bool) -> str | None:
    """The column of a data set that is likeliest the one of the prompts."""
    named = [n for n in first if re.fullmatch(r"[\w .()-]+", n)]  # else a row without a header
    texts = [n for n in named if not is_row or isinstance(first[n], str | list)]
    near = closest(column, texts, SAME_FILE) or closest(column.lower(), texts, SAME_FILE)
    usual = [n for likely in (*CONVERSATIONS, *LIKELY) for n in texts if n.lower() == likely]
    longest = sorted(texts, key=lambda name: -len(str(first[name]))) if is_row else []
    return near or next(iter([*usual, *longest]), None)


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
    is_file = "path" in traits["prompts"].get("prompt_files", ()) or _is_data_set(node)
    if not is_file or not isinstance(value, str) or not os.path.isfile(_path(value)):
        return None
    head = prompt_head(node)
    return None if head.fault or head.columns is None else head


def columns_of(config: Config, traits: Traits) -> Sequence[str] | None:
    """The columns of the prompts, as far as they are known without loading them."""
    rows = known_rows(config, traits)
    if rows is None or rows.columns is None:
        return traits["prompts"].get("metadata")
    return [*dict.fromkeys([*rows.columns, *pair_columns(rows.columns)])]


def _path(value: str) -> Path:
    return Path(value).expanduser()


EDITING, EDITS = "model=flux_kontext", "prompts=edits"
"""A model that edits pictures, and prompts that have some."""
READING = "model=qwen25_vl"
"""A language model that reads pictures."""


def require_matching_pictures(config: Config, traits: Traits) -> Iterator[Problem]:
    """Prompts have pictures exactly if the model edits them, and some if it reads them."""
    model, having = traits["model"], _have_pictures(config, traits)
    node, column = config["prompts"], config["prompts"].get("image_column")
    if model.get("reads_pictures"):
        if having is False and column is not None:
            names = [name for name in columns_of(config, traits) or () if name != column]
            guess = closest(column, names, 0.5) or next((n for n in names if "image" in n), "null")
            message = f"is {column}, under which no prompt has a picture; null is for texts alone"
            yield Problem("prompts.image_column", message, f"prompts.image_column={guess}")
    elif having is False and model.get("pictures"):
        message = "have no pictures, and this model edits pictures; give each prompt one"
        is_off = "column" in node and column is None
        yield Problem("prompts", message, "prompts.image_column=image" if is_off else EDITS)
    elif having and not model.get("pictures"):
        other = READING if model.get("media") == "texts" else EDITING
        fix = other if column is None else "prompts.image_column=null"
        yield Problem("prompts", f"have pictures, and this model takes none; {other} does", fix)


def _have_pictures(config: Config, traits: Traits) -> bool | None:
    """Whether prompts have pictures; None where only loading the data can say."""
    declared = traits["prompts"].get("pictures", False)
    if declared is not None:
        return bool(declared)
    column, rows = config["prompts"].get("image_column"), known_rows(config, traits)
    if column is None and "image_column" in config["prompts"]:
        return False
    if rows is None or not rows.rows:
        return None
    return any(row.get(column) is not None for row in rows.rows)


def require_readable_pictures(config: Config, traits: Traits) -> Iterator[Problem]:
    """Each line of a prompt file has a picture, which can be read and has the model's shape."""
    column, reads = config["prompts"].get("image_column"), traits["model"].get("reads_pictures")
    if not (traits["model"].get("pictures") or reads) or column is None:
        return
    size = None if reads else height_and_width(config["model"]["size"])
    for name in traits["prompts"].get("prompt_files", ()):
        value = config["prompts"].get(name)
        if not isinstance(value, str):
            continue
        for number, row in enumerate(prompt_head(config["prompts"], name).rows, start=1):
            if reads and row.get(column) is None:  # a text alone
                continue
            if found := picture_fault(row, column, folder_of_data(value), size):
                message = f"{value}, prompt {number}: {found[0]}"
                yield Problem(f"prompts.{name}", message, found[1])
                return


def picture_fault(
    row: Mapping[str, Any], column: str, folder: Path, size: tuple[int, int] | None
) -> tuple[str, str] | None:
    """The fault of the picture of a row, and what to type, if anything; None where it fits.

    Args:
        row: has a picture in any form that `prompts.ops.pictured.pictured` takes.
        column: where.
        folder: what its path is relative to.
        size: height and width of what the model makes; None: any.
    """
    # Pillow takes a while to import
    from rlfactory.prompts.ops.pictured import unfitting

    if row.get(column) is None:
        return f"has no picture under {column}", ""
    if (found := unfitting(row[column], folder, size)) is None:
        return None
    problem, fitting = found
    return problem, f"model.size=[{fitting[0]},{fitting[1]}]" if fitting else ""
