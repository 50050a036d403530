"""Prompts from a data set: a file or files, a folder, or a hub id of Hugging Face `datasets`."""

import glob
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.data_rows import (
    TEXT_KINDS,
    Placed,
    data_rows,
    folder_fault,
    folder_of_data,
    hub_words,
    kind_of,
)
from rlfactory.prompts.ops.prompt_list import LazyPrompts, PromptList, RowReader, split_prompts
from rlfactory.prompts.ops.row_forms import PARTS, PREFERENCE, of_table
from rlfactory.utils.types import Fraction


class HubPrompts(PromptList):
    """The texts or lists of messages of a data set.

    Where the column `prompt` is not there, rows may have one of the forms of
    `prompts.ops.row_forms`. A folder has data files, or was written by `save_to_disk`. Where fewer
    than 4 prompts are held out, evaluation takes training prompts, evenly spaced over the split.
    PromptError where the data can't be loaded, or no prompt is left to train on.
    """

    metadata = None
    pictures = None

    def __init__(
        self,
        *,
        path: str,
        split: str = "train",
        column: str = "prompt",
        eval_path: str | None = None,
        eval_split: str | None = None,
        held_out_share: Fraction = 0.0,
        image_column: str | None = None,
        skip_empty: list[str] | None = None,
    ) -> None:
        """
        Args:
            path: Hub id, folder, file (.parquet, .jsonl, .json, .csv, .tsv), or a pattern of files.
            split: The split to train on.
            column: The column of texts; the others are metadata.
            eval_path: A file, folder or hub id to evaluate on, all of it.
            eval_split: The split to evaluate on; null: that of the same name in eval_path, or see
                held_out_share.
            held_out_share: 0 to below 1: share of the prompts, by a hash, to evaluate on where
                there is no eval_path or eval_split.
            image_column: The column of pictures; null: none.
            skip_empty: columns, [prompt,answer]: rows with nothing in one of them are left out;
                null: refused.
        """

        def load(path: str, split: str) -> Sequence[Prompt]:
            reader = RowReader(column, image_column, folder_of_data(path), skip_empty or ())
            return load_prompts(path, split, reader)

        prompts = load(path, split)
        if eval_path is not None or eval_split is not None:
            super().__init__(prompts, load(eval_path or path, eval_split or "train"))
        else:
            super().__init__(*split_prompts(prompts, held_out_share))


def load_prompts(path: str, split: str, reader: RowReader) -> Sequence[Prompt]:
    """The prompts of a data set's split; PromptError where it can't be loaded or has none."""
    try:
        rows = _open(path, split)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        if isinstance(error, PromptError):
            raise
        generated = isinstance(error, datasets.exceptions.DatasetGenerationError)
        reason = error.__cause__ if generated else error  # which of them says why
        raise PromptError(f"{path}: cannot load split {split!r}: {reason}") from error
    if not isinstance(rows, datasets.Dataset):
        names = list(dict.fromkeys(name for _, row in rows for name in row))
        _require_columns(names, path, reader)
        return reader.read_all([(at, {**dict.fromkeys(names), **row}) for at, row in rows], path)
    if len(rows) == 0:
        raise PromptError(f"{path}: split {split!r} has no prompts")
    _require_columns(rows.column_names, path, reader)
    image = reader.image_column
    for name, kind in rows.features.items():
        # files as they are: those of sounds and videos are not read
        if isinstance(kind, datasets.Audio | datasets.Video) or (
            name == image and isinstance(kind, datasets.Image)
        ):
            rows = rows.cast_column(name, type(kind)(decode=False))

    def read(index: int, row: Mapping[str, Any]) -> Prompt:
        return reader.read(f"{path}: row {index + 1}", of_table(row, reader.column))

    used = {reader.column, image, *PARTS, PREFERENCE, *reader.skip_empty}
    used |= {name.partition(".")[0] for name in used if name}  # of `data.prompt`
    names = [name for name in rows.column_names if name in used]
    read_only = rows.select_columns(names or rows.column_names)
    kept = reader.kept(read_only, path)
    read(kept[0], rows[kept[0]])  # all columns of a row say which form it has
    # faster than whole rows
    texts = [read(i, row).text for i, row in zip(kept, read_only.select(kept), strict=True)]
    return LazyPrompts(texts, kept, lambda index: read(index, rows[index]))


def _require_columns(names: Sequence[str], path: str, reader: RowReader) -> None:
    for column in filter(None, (reader.column, reader.image_column)):
        if column not in ("prompt", *names) and column.partition(".")[0] not in names:
            raise PromptError(f"{path}: no column {column!r}; there are {', '.join(names)}")


def _open(path: str, split: str) -> "datasets.Dataset | list[Placed]":
    local = Path(path).expanduser()
    is_pattern = glob.has_magic(path) and not local.exists()
    files = [Path(found) for found in sorted(glob.glob(str(local), recursive=True))]
    if is_pattern and not files:
        raise ValueError("no file fits this pattern")
    if not is_pattern and not os.path.isfile(local):
        return _open_folder(path, local, split)
    if split != "train":
        raise ValueError(
            "files have no splits; type prompts.eval_path=FILE for those to evaluate on"
        )
    kinds = {kind_of(file) for file in files}
    if kinds == {".parquet"}:
        names = [str(file) for file in files]
        return datasets.load_dataset("parquet", data_files=names, split=split)
    return [row for file in files for row in data_rows(file)]


def _open_folder(path: str, local: Path, split: str) -> datasets.Dataset:
    if kind_of(local) in (*TEXT_KINDS, ".parquet") and not local.exists():
        raise ValueError("there is no such file")
    if os.path.isfile(local / "state.json"):
        if split != "train":
            raise ValueError("it has no splits; type prompts.eval_path=FOLDER to evaluate on")
        return datasets.load_from_disk(str(local))
    if os.path.isfile(local / "dataset_dict.json"):
        saved: Mapping[str, Any] = datasets.load_from_disk(str(local))
        if split not in saved:
            raise ValueError(f"its splits are {', '.join(saved)}")
        return saved[split]
    if os.path.isdir(local) and (fault := folder_fault(local)):
        raise ValueError(f"it {fault}")
    try:
        return datasets.load_dataset(*hub_words(str(local)), split=split)
    except ValueError as error:
        if not str(error).startswith("Config name is missing"):
            raise
        parts = re.findall(r"\[.*\]", str(error))
        raise ValueError(f"it has parts, {parts[0]}; type prompts.path={path}/PART") from error
