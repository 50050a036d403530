"""Prompts from a data set of Hugging Face `datasets`: a hub id, a folder or a file."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets

from rlfactory.prompts.base import Prompt, PromptError, Prompts, item_indices, spread_indices
from rlfactory.prompts.ops.chat import read_prompt
from rlfactory.prompts.ops.pictured import pictured
from rlfactory.utils.held_out import held_out_texts
from rlfactory.utils.types import Fraction

_BUILDERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv"}


class HubPrompts(Prompts):
    """The texts or lists of messages of one column, with the pictures of another where
    `image_column` names one; the other columns are the metadata.

    `path` is a hub id, a folder (of data files, or written by `Dataset.save_to_disk`) or a
    .parquet, .json, .jsonl or .csv file. Without an `eval_split`, `held_out_share` of the
    different prompts is held out for evaluation; where that is fewer than 4, evaluation takes
    training prompts, evenly spaced over the split. PromptError where the data can't be loaded, or
    no prompt is left to train on.
    """

    metadata = None
    separate = None
    pictures = None

    def __init__(
        self,
        *,
        path: str,
        split: str = "train",
        column: str = "prompt",
        eval_split: str | None = None,
        held_out_share: Fraction = 0.0,
        image_column: str | None = None,
    ) -> None:
        self.column, self.image_column = column, image_column
        columns = [column] if image_column is None else [column, image_column]
        rows = _load(path, split, columns)
        if eval_split is not None:
            self.rows, self.eval_rows = rows, _load(path, eval_split, columns)
        else:
            self.rows, self.eval_rows = _split(rows, column, held_out_share)
        texts, eval_texts = ({*_prompts_of(r, column)} for r in (self.rows, self.eval_rows))
        self.separate = not texts & eval_texts

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` prompts, shuffled without replacement."""
        chosen = item_indices(len(self.rows), count, seed=seed, iteration=iteration)
        return [self._prompt(self.rows, i) for i in chosen]

    def known(self) -> Iterator[Prompt]:
        """The prompts of the training split, read one by one."""
        return (self._prompt(self.rows, i) for i in range(len(self.rows)))

    def texts(self) -> Sequence[str]:
        """The texts of the column; PromptError where a row has none."""
        if self.image_column is not None:
            return super().texts()
        # faster than `known`, which reads every column
        return _prompts_of(self.rows, self.column)

    def held_out(self, count: int) -> list[Prompt]:
        """At most `count` prompts of the evaluation split."""
        chosen = spread_indices(len(self.eval_rows), count)
        return [self._prompt(self.eval_rows, i) for i in chosen]

    def _prompt(self, rows: datasets.Dataset, index: int) -> Prompt:
        text, row = _read(rows[index], self.column, index)
        if self.image_column is None:
            return Prompt(text, row)
        try:
            return Prompt(pictured(text, row.pop(self.image_column)), row)
        except ValueError as error:
            raise PromptError(f"row {index}: {self.image_column!r}: {error}") from error


def _read(row: Mapping[str, Any], column: str, index: int) -> tuple[str, dict[str, Any]]:
    try:
        return read_prompt(row, column)
    except ValueError as error:
        raise PromptError(f"row {index}: {column!r} {error}") from error


def _prompts_of(rows: datasets.Dataset, column: str) -> list[str]:
    """The prompts in a column; PromptError, with the row's number, where one is none."""
    return [_read({column: value}, column, i)[0] for i, value in enumerate(rows[column])]


def _split(
    rows: datasets.Dataset, column: str, share: float
) -> tuple[datasets.Dataset, datasets.Dataset]:
    """The rows to train on and those to evaluate on: all of them twice if none is held out."""
    texts = _prompts_of(rows, column)
    chosen = held_out_texts(texts, share)
    if not chosen:
        return rows, rows
    training = [i for i, text in enumerate(texts) if text not in chosen]
    if not training:
        raise PromptError(f"prompts.held_out_share={share:g} leaves none to train on")
    return rows.select(training), rows.select([i for i, text in enumerate(texts) if text in chosen])


def _load(path: str, split: str, columns: Sequence[str]) -> datasets.Dataset:
    try:
        rows = _open(path, split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise PromptError(f"{path}: cannot load split {split!r}: {error}") from error
    for column in columns:
        if column not in rows.column_names:
            raise PromptError(f"{path}: no column {column!r}; there are {rows.column_names}")
    for column in columns[1:]:  # pictures: their files as they are
        if isinstance(rows.features[column], datasets.Image):
            rows = rows.cast_column(column, datasets.Image(decode=False))
    if len(rows) == 0:
        raise PromptError(f"{path}: split {split!r} has no prompts")
    return rows


def _open(path: str, split: str) -> datasets.Dataset:
    local = Path(path)
    if os.path.isfile(local):
        if local.suffix not in _BUILDERS:
            raise ValueError(f"a file must be one of {', '.join(_BUILDERS)}")
        return datasets.load_dataset(_BUILDERS[local.suffix], data_files=path, split=split)
    if local.suffix in _BUILDERS and not local.exists():
        raise ValueError("there is no such file")
    if os.path.isfile(local / "state.json"):
        return datasets.load_from_disk(path)
    if os.path.isfile(local / "dataset_dict.json"):
        saved = datasets.load_from_disk(path)
        if split not in saved:
            raise ValueError(f"its splits are {', '.join(saved)}")
        return saved[split]
    return datasets.load_dataset(path, split=split)
