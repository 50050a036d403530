"""Prompts from a text file: `.txt`, one a line, or `.jsonl`, one object a line."""

import json
from pathlib import Path
from typing import Any

from rlfactory.prompts.base import Prompt, PromptError, Prompts
from rlfactory.prompts.sampler import item_indices, spread_indices


class FilePrompts(Prompts):
    """A `.jsonl` line holds the `prompt`; its other keys are the metadata, as in GenEval's files.

    Without an `eval_path`, evaluation takes training prompts, evenly spread over the file.
    """

    metadata = None

    def __init__(self, *, path: str, eval_path: str | None = None) -> None:
        self.prompts = read_prompts(Path(path))
        self.eval_prompts = self.prompts if eval_path is None else read_prompts(Path(eval_path))

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` prompts of an iteration, shuffled without replacement."""
        chosen = item_indices(len(self.prompts), count, seed=seed, iteration=iteration)
        return [self.prompts[i] for i in chosen]

    def known(self) -> list[Prompt]:
        """Those of the file."""
        return self.prompts

    def held_out(self, count: int) -> list[Prompt]:
        """At most `count` prompts of the evaluation file."""
        return [self.eval_prompts[i] for i in spread_indices(len(self.eval_prompts), count)]


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of a file; blank lines are passed over. PromptError where it is not in order."""
    if path.suffix not in (".txt", ".jsonl"):
        raise PromptError(f"{path}: prompts are read from .txt or .jsonl, not from {path.suffix!r}")
    parse = _parse_object if path.suffix == ".jsonl" else _parse_text
    lines = enumerate(_text(path).split("\n"), start=1)
    prompts = [parse(line.strip(), f"{path}:{number}") for number, line in lines if line.strip()]
    if not prompts:
        raise PromptError(f"{path}: no prompts; the file is empty")
    return prompts


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PromptError(f"{path}: cannot read prompts: {error.strerror}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PromptError(f"{path}:{line}: not UTF-8 ({error.reason}); save as UTF-8") from error


def _parse_text(line: str, _: str) -> Prompt:
    return Prompt(line, {})


def _parse_object(line: str, where: str) -> Prompt:
    try:
        value: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise PromptError(f"{where}: not JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(value, dict):
        raise PromptError(f"{where}: a line must be a JSON object, not {type(value).__name__}")
    text = value.pop("prompt", None)
    if not isinstance(text, str) or not text.strip():
        found = f"its keys are {[*value]}" if text is None else f"it is {text!r}"
        raise PromptError(f"{where}: `prompt` must be a text; {found}")
    return Prompt(text, value)
