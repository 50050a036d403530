"""Preference pairs: a `.jsonl` file with `prompt`, `chosen` and `rejected` in each line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.file import read_prompts
from rlfactory.prompts.ops.held_out import FEWEST, held_out_texts

COLUMNS = ("chosen", "rejected")
REFERENCE = "reference"


@dataclass(frozen=True)
class Pair:
    """Two completions of a prompt, of which one was preferred.

    Attributes:
        prompt: the text before both.
        chosen: the better completion.
        rejected: the worse one.
        reference: a completion whose score counts as 0 on average, such as a human's.
    """

    prompt: str
    chosen: str
    rejected: str
    reference: str


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a file; without a `reference` the chosen completion is one.

    Raises:
        PromptError: the file can't be read, or a row lacks a text or has two equal ones.
    """
    if path.suffix != ".jsonl":
        raise PromptError(f"{path}: pairs are read from .jsonl, not from {path.suffix!r}")
    return [_pair(row, f"{path}: pair {n}") for n, row in enumerate(read_prompts(path), start=1)]


def _pair(row: Prompt, where: str) -> Pair:
    texts = {}
    for column in COLUMNS:
        value = row.metadata.get(column)
        if not isinstance(value, str) or not value.strip():
            actual = f"it is {value!r}" if column in row.metadata else "there is none"
            keys = ", ".join(["prompt", *row.metadata])
            raise PromptError(f"{where}: `{column}` must be a text, and {actual}; its keys: {keys}")
        texts[column] = value
    if texts["chosen"].strip() == texts["rejected"].strip():
        message = f"`chosen` and `rejected` are equal, {texts['chosen'][:40]!r}"
        raise PromptError(f"{where}: {message}; nothing is preferred, remove the line")
    reference = row.metadata.get(REFERENCE, texts["chosen"])
    if not isinstance(reference, str) or not reference.strip():
        raise PromptError(f"{where}: `{REFERENCE}` must be a text; it is {reference!r}")
    return Pair(row.text, texts["chosen"], texts["rejected"], reference)


def split_pairs(pairs: Sequence[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """Pairs to train on and pairs held out; all pairs of a prompt are on one side.

    Raises:
        PromptError: the share holds out too few prompts to measure on, or all of them.
    """
    chosen = held_out_texts((pair.prompt for pair in pairs), share)
    training = [pair for pair in pairs if pair.prompt not in chosen]
    held_out = [pair for pair in pairs if pair.prompt in chosen]
    if not training or not held_out:
        count = len({pair.prompt for pair in pairs})
        raise PromptError(
            f"--held-out {share:g} of {count} different prompts leaves {len(training)} pairs to"
            f" train on and {len(held_out)} to measure the accuracy on, of which at least {FEWEST}"
            " prompts are needed; give more pairs, or another share"
        )
    return training, held_out
