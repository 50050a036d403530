"""Prompts that a Python caller hands over: texts, lists of messages, rows, or a data set."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from hashlib import sha256
from pathlib import Path
from typing import Any

from rlfactory.prompts.base import Prompt, PromptError, Prompts
from rlfactory.prompts.ops.chat import MESSAGES
from rlfactory.prompts.ops.data_rows import kind_of
from rlfactory.prompts.ops.prompt_list import PromptList, RowReader
from rlfactory.prompts.ops.row_forms import PARTS, of_table

IMAGE = "image"
"""The key of a picture to be edited."""
MOST = 1_000_000
"""Rows that are taken of what may have no end."""

Row = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A text, a row of data, or a list of messages."""


class InMemoryPrompts(PromptList):
    """The prompts of an iterable: texts, lists of messages, or mappings with either under `column`
    or in one of the forms of `row_forms`.

    A mapping may have a picture to be edited under `image`: a path, a file's content or a Pillow
    image. The other keys are the metadata. Without `evaluation`, evaluation takes training
    prompts, evenly spaced.

    Args:
        rows: a list of texts, lists of messages or mappings; a `datasets.Dataset` or torch's, a
            data frame, a table of Arrow, or any other iterable that ends.
        evaluation: the same, for evaluation.
        column: the key of the prompt.

    Raises:
        PromptError: there is no row, or one has no text, or a picture that can't be read.
    """

    metadata = None
    pictures = None

    def __init__(
        self,
        rows: Iterable[Row],
        evaluation: Iterable[Row] | None = None,
        *,
        column: str = "prompt",
    ) -> None:
        prompts = read_rows(rows, column, "prompts")
        evaluated = None if evaluation is None else read_rows(evaluation, column, "eval_prompts")
        super().__init__(prompts, evaluated)

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def digest(self) -> str:
        """Tells the prompts to train on from others, with the plain values of their rows."""
        told = sha256()
        for prompt in self.prompts:
            plain = {k: v for k, v in prompt.metadata.items() if isinstance(v, str | int | float)}
            told.update(repr((str(getattr(prompt.text, "identity", prompt.text)), plain)).encode())
        return told.hexdigest()


def with_prompts(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments with `prompts` and `eval_prompts` made one source of prompts.

    A source, the name of an option or a mapping of settings stays as it is; a `Path` is that of
    `prompts=file` or `prompts=datasets`. PromptError where `eval_prompts` come without prompts of
    their kind, or a row has no text.
    """
    others = {key: value for key, value in given.items() if key != "eval_prompts"}
    prompts, evaluation = given.get("prompts"), given.get("eval_prompts")
    is_option = isinstance(prompts, str | Prompts) or _are_settings(prompts)
    if isinstance(prompts, Path) and isinstance(evaluation, Path | None):
        paths = {"prompts.path": prompts, "prompts.eval_path": evaluation}
        is_data_set = prompts.is_dir() or kind_of(prompts) == ".parquet"
        option = "datasets" if is_data_set else "file"
        return {**others, "prompts": option} | {k: p for k, p in paths.items() if p is not None}
    if prompts is not None and not is_option:
        return {**others, "prompts": InMemoryPrompts(prompts, evaluation)}
    if evaluation is not None:
        raise PromptError(
            "eval_prompts: are for prompts that are handed over; prompts=file has prompts.eval_path"
        )
    return others


def _are_settings(value: object) -> bool:
    """Whether a mapping holds options, and is no data set of several splits."""
    if not isinstance(value, Mapping):
        return False
    return not _are_columns(value) and not any(hasattr(v, "column_names") for v in value.values())


def _are_columns(value: Mapping[str, Any]) -> bool:
    """Whether a mapping has rows by column, each a list."""
    return any(isinstance(value.get(name), list) for name in PARTS)


def read_rows(rows: Iterable[Row], column: str, name: str) -> list[Prompt]:
    """The prompts of rows; PromptError, with the row's number, where one has no prompt."""
    reader = RowReader(column, IMAGE, skip_empty=())
    try:
        is_table = hasattr(rows, "column_names") or hasattr(rows, "columns")
        given = (of_table(row, column) if is_table else row for row in _rows(rows, name))
        prompts = [reader.read(f"{name}: row {n}", row) for n, row in enumerate(given)]
    except PromptError as error:
        of_files = ", or (leave such|name its|type)|; prompts.image_column"
        text = re.split(of_files, str(error))[0]
        raise PromptError(text + (_renaming(rows) if "has no" in text else "")) from error
    if not prompts:
        without = ", or leave it out" if name == "eval_prompts" else ""
        raise PromptError(f"{name}: is empty; hand over at least one{without}")
    return prompts


def _renaming(rows: object) -> str:
    """How the column of prompts gets its name in a data set or a pandas frame."""
    if hasattr(rows, "rename_column"):
        return "; type data.rename_column('...', 'prompt')"
    return "; type data.rename(columns={'...': 'prompt'})" if hasattr(rows, "iloc") else ""


def _rows(rows: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """The rows of what is handed over, as mappings."""
    if hasattr(rows, "to_pylist"):  # of Arrow
        rows = rows.to_pylist()
    if isinstance(rows, Mapping) and _are_columns(rows):
        lengths = {key: len(column) for key, column in rows.items()}
        if len({*lengths.values()}) > 1:
            raise PromptError(f"{name}: its columns differ in length: {lengths}")
        rows = [dict(zip(rows, row, strict=False)) for row in zip(*rows.values(), strict=True)]
    if isinstance(rows, Mapping):
        splits = ", ".join(f"{name}=data[{split!r}]" for split in rows)
        raise PromptError(f"{name}: has the splits {', '.join(rows)}; hand over one: {splits}")
    if not isinstance(rows, Iterable) and hasattr(rows, "__getitem__") and hasattr(rows, "__len__"):
        rows = [rows[number] for number in range(len(rows))]  # a torch.utils.data.Dataset
    if isinstance(rows, str | bytes | set | frozenset) or not isinstance(rows, Iterable):
        raise PromptError(
            f"{name}: is a {type(rows).__name__}; hand over texts, lists of messages, rows, a"
            " datasets.Dataset or a data frame"
        )
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # a data frame
        frame: Any = rows
        rows = frame.to_dict("records") if hasattr(frame, "iloc") else frame.to_dicts()
    for number, row in enumerate(rows):
        if number == MOST and not isinstance(rows, Sized):
            raise PromptError(f"{name}: more than {MOST:,} rows; does it end? Hand over fewer")
        if isinstance(row, str):
            row = {"prompt": str(row)}
        elif isinstance(row, list | tuple):
            row = {MESSAGES: [*row]}
        if not isinstance(row, Mapping) or not all(isinstance(key, str) for key in row):
            raise PromptError(
                f"{name}: row {number} is {row!r:.60}; it must be a text, a list of messages, or a"
                " mapping whose keys are texts"
            )
        yield {key: value.tolist() if _is_array(value) else value for key, value in row.items()}


def _is_array(value: object) -> bool:
    """Whether a value is a number or an array of NumPy, or of a library like it."""
    return hasattr(value, "tolist") and hasattr(value, "dtype")
