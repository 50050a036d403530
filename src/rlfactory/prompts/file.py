"""Prompts from a file: a prompt per line, or rows of which each has a prompt."""

from collections.abc import Sequence
from pathlib import Path

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.data_rows import data_rows
from rlfactory.prompts.ops.prompt_list import PromptList, RowReader, split_prompts
from rlfactory.utils.types import Fraction

IMAGE = "image"
"""The key of a picture's path, unless `image_column` says another."""


class FilePrompts(PromptList):
    """The prompts of a file.

    Rows without a `column` of that name may have one of the forms of `prompts.ops.row_forms`. Where
    fewer than 4 prompts are held out, evaluation takes training prompts, evenly spaced over the
    file. PromptError where a file can't be read, or no prompt is left to train on.
    """

    metadata = None
    pictures = None
    prompt_files = ("path", "eval_path")

    def __init__(
        self,
        *,
        path: str,
        column: str = "prompt",
        eval_path: str | None = None,
        held_out_share: Fraction = 0.0,
        image_column: str | None = IMAGE,
        skip_empty: list[str] | None = None,
    ) -> None:
        """
        Args:
            path: .txt: a prompt per line; .jsonl, .json, .csv or .tsv: rows.
            column: The column of texts or messages; the others are metadata.
            eval_path: The same for evaluation, all of it; null: see held_out_share.
            held_out_share: 0 to below 1: share of the prompts, by a hash, to evaluate on where
                there is no eval_path.
            image_column: Key of a picture, a path relative to the file; null: none is read.
            skip_empty: columns, [prompt,answer]: rows with nothing in one of them are left out;
                null: refused.
        """
        options = (image_column, column, skip_empty or ())
        prompts = read_prompts(Path(path), *options)
        if eval_path is not None:
            super().__init__(prompts, read_prompts(Path(eval_path), *options))
            return
        super().__init__(*split_prompts(prompts, held_out_share))


def read_prompts(
    path: Path,
    image_column: str | None = IMAGE,
    column: str = "prompt",
    skip_empty: Sequence[str] = (),
) -> list[Prompt]:
    """The prompts of a file, without blank lines; PromptError where it, or the picture under
    `image_column` of a row, can't be read.
    """
    reader = RowReader(column, image_column, path.parent, skip_empty)
    return reader.read_all(data_rows(path), path)
