"""Prompts from a data set: on the Hugging Face hub, in a folder or in a file."""

import os
from collections.abc import Iterator
from pathlib import Path

import datasets

from rlfactory.prompts.base import Prompt, PromptError, Prompts
from rlfactory.prompts.sampler import item_indices, spread_indices

_BUILDERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv"}


class HubPrompts(Prompts):
    """The texts of one column; the other columns are the metadata.

    `path` is a hub id, a folder (of data files, or as `Dataset.save_to_disk` leaves it) or a
    .parquet, .json, .jsonl or .csv file. Without an `eval_split`, evaluation takes training
    prompts, evenly spread over the split.
    """

    metadata = None

    def __init__(
        self,
        *,
        path: str,
        split: str = "train",
        column: str = "prompt",
        eval_split: str | None = None,
    ) -> None:
        self.column = column
        self.rows = _load(path, split, column)
        self.eval_rows = self.rows if eval_split is None else _load(path, eval_split, column)

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` prompts of an iteration, shuffled without replacement."""
        chosen = item_indices(len(self.rows), count, seed=seed, iteration=iteration)
        return [self._prompt(self.rows, i) for i in chosen]

    def known(self) -> Iterator[Prompt]:
        """Those of the split, read one by one."""
        return (self._prompt(self.rows, i) for i in range(len(self.rows)))

    def texts(self) -> list[str]:
        """Those of the column; PromptError where one is none."""
        texts = list(self.rows[self.column])
        odd = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
        return texts if odd is None else [self._prompt(self.rows, odd).text]

    def held_out(self, count: int) -> list[Prompt]:
        """At most `count` prompts of the evaluation split."""
        chosen = spread_indices(len(self.eval_rows), count)
        return [self._prompt(self.eval_rows, i) for i in chosen]

    def _prompt(self, rows: datasets.Dataset, index: int) -> Prompt:
        row = dict(rows[index])
        text = row.pop(self.column)
        if not isinstance(text, str):
            raise PromptError(f"row {index}: {self.column!r} must be a text; it is {text!r}")
        return Prompt(text, row)


def _load(path: str, split: str, column: str) -> datasets.Dataset:
    try:
        rows = _open(path, split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise PromptError(f"{path}: cannot load split {split!r}: {error}") from error
    if column not in rows.column_names:
        raise PromptError(f"{path}: no column {column!r}; there are {rows.column_names}")
    if len(rows) == 0:
        raise PromptError(f"{path}: split {split!r} has no prompts")
    return rows


def _open(path: str, split: str) -> datasets.Dataset:
    local = Path(path)
    if os.path.isfile(local):
        if local.suffix not in _BUILDERS:
            raise ValueError(f"a file must be one of {', '.join(_BUILDERS)}")
        return datasets.load_dataset(_BUILDERS[local.suffix], data_files=path, split=split)
    if os.path.isfile(local / "state.json"):
        return datasets.load_from_disk(path)
    if os.path.isfile(local / "dataset_dict.json"):
        saved = datasets.load_from_disk(path)
        if split not in saved:
            raise ValueError(f"its splits are {', '.join(saved)}")
        return saved[split]
    return datasets.load_dataset(path, split=split)
