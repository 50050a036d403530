"""Prompts that a Python caller hands over: texts, lists of messages, rows, or a data set."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlfactory.prompts.base import Prompt, PromptError, Prompts
from rlfactory.prompts.ops.chat import MESSAGES, read_prompt
from rlfactory.prompts.ops.pictured import pictured
from rlfactory.prompts.ops.prompt_list import PromptList

Row = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A text, a row of data, or a list of messages."""


class InMemoryPrompts(PromptList):
    """The prompts of an iterable: texts, lists of messages, or mappings with either under `column`
    or with messages under `messages`.

    A mapping may have a picture to be edited under `image`: a path, a file's content or a Pillow
    image. The other keys are the metadata. Without `evaluation`, evaluation takes training
    prompts, evenly spaced.

    Args:
        rows: a list of texts, lists of messages or mappings, or a `datasets.Dataset`.
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
        prompts = [*read_rows(rows, column)]
        if not prompts:
            raise PromptError("prompts: is empty; hand over at least one")
        held_out = None if evaluation is None else [*read_rows(evaluation, column)]
        if held_out == []:
            raise PromptError("eval_prompts: is empty; leave it out to hold prompts out")
        super().__init__(prompts, held_out)

    def __len__(self) -> int:
        return len(self.prompts)


def with_prompts(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments with `prompts` and `eval_prompts` made one source of prompts.

    A source, the name of an option or a mapping of settings stays as it is.

    Raises:
        PromptError: `eval_prompts` come without prompts in memory, or a row has no text.
    """
    others = {key: value for key, value in given.items() if key != "eval_prompts"}
    prompts, evaluation = given.get("prompts"), given.get("eval_prompts")
    if prompts is not None and not isinstance(prompts, str | Prompts | Mapping):
        return {**others, "prompts": InMemoryPrompts(prompts, evaluation)}
    if evaluation is not None:
        raise PromptError(
            "eval_prompts: are for prompts that are handed over; prompts=file has prompts.eval_path"
        )
    return others


def read_rows(rows: Iterable[Row], column: str) -> Iterable[Prompt]:
    """The prompts of rows; PromptError, with the row's number, where one has no prompt."""
    for number, row in enumerate(rows):
        text, metadata = _read(row, column, number)
        if not text.strip():
            raise PromptError(f"prompts: row {number} is empty")
        picture = metadata.pop("image", None)
        if picture is not None:
            try:
                text = pictured(text, picture)
            except ValueError as error:
                raise PromptError(f"prompts: row {number}: 'image': {error}") from error
        yield Prompt(text, metadata)


def _read(row: Row, column: str, number: int) -> tuple[str, dict[str, Any]]:
    if isinstance(row, str):
        return row, {}
    given = row if isinstance(row, Mapping) else {MESSAGES: row}
    key = column if given.get(column) is not None else MESSAGES
    if given.get(key) is None:
        raise PromptError(
            f"prompts: row {number} has no prompt under {column!r}; its keys are {[*given]}. Rename"
            f" the column of a data set: dataset.rename_column('...', {column!r})"
        )
    try:
        return read_prompt(given, key)
    except ValueError as error:
        where = f"row {number}" if given is not row else f"row {number}: {key!r}"
        raise PromptError(f"prompts: {where} {error}") from error
