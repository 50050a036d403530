"""Prompts from a file: `.txt`, one prompt per line, or `.jsonl`, one object per line."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.chat import MESSAGES, prompt_key, read_prompt
from rlfactory.prompts.ops.pictured import pictured
from rlfactory.prompts.ops.prompt_list import PromptList
from rlfactory.utils.held_out import held_out_texts
from rlfactory.utils.types import Fraction

IMAGE = "image"
"""The key of a picture's path, unless `image_column` says another."""


class FilePrompts(PromptList):
    """The prompts of a file.

    A `.jsonl` object has the text under `prompt`, or a list of messages there or under `messages`;
    its other keys are the metadata, as in GenEval's files. Under `image_column` it may have a
    picture to be edited, a path relative to the file; with None no picture is read. Without an
    `eval_path`, `held_out_share` of the different prompts is held out for evaluation; where that
    is fewer than 4, evaluation takes training prompts,
    evenly spaced over the file. PromptError where a file can't be read, or no prompt is left to
    train on.
    """

    metadata = None
    pictures = None
    prompt_files = ("path", "eval_path")

    def __init__(
        self,
        *,
        path: str,
        eval_path: str | None = None,
        held_out_share: Fraction = 0.0,
        image_column: str | None = IMAGE,
    ) -> None:
        prompts = read_prompts(Path(path), image_column)
        if eval_path is not None:
            super().__init__(prompts, read_prompts(Path(eval_path), image_column))
            return
        chosen = held_out_texts((prompt.text for prompt in prompts), held_out_share)
        training = [prompt for prompt in prompts if prompt.text not in chosen]
        evaluation = [prompt for prompt in prompts if prompt.text in chosen]
        if not training:
            raise PromptError(f"prompts.held_out_share={held_out_share:g} leaves none to train on")
        super().__init__(training, evaluation or None)


def read_prompts(path: Path, image_column: str | None = IMAGE) -> list[Prompt]:
    """The prompts of a file, without blank lines; PromptError where it, or the picture under
    `image_column` of a line, can't be read.
    """
    if path.suffix not in (".txt", ".jsonl"):
        raise PromptError(f"{path}: prompts are read from .txt or .jsonl, not from {path.suffix!r}")
    read_object = partial(_parse_object, image_column=image_column, folder=path.parent)
    parse = read_object if path.suffix == ".jsonl" else _parse_text
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


def _parse_object(line: str, where: str, *, image_column: str | None, folder: Path) -> Prompt:
    try:
        value: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise PromptError(f"{where}: not JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(value, dict):
        raise PromptError(f"{where}: a line must be a JSON object, not {type(value).__name__}")
    key = prompt_key(value)
    if key is None:
        raise PromptError(f"{where}: has no `prompt` and no `{MESSAGES}`; its keys are {[*value]}")
    try:
        text, value = read_prompt(value, key)
    except ValueError as error:
        raise PromptError(f"{where}: `{key}` {error}") from error
    if not text.strip():
        raise PromptError(f"{where}: `{key}` must be a text; it is {text!r}")
    picture = None if image_column is None else value.get(image_column)
    if picture is None:
        return Prompt(text, value)
    try:
        edited = pictured(text, picture, folder)
    except ValueError as error:
        hint = f"; prompts.{IMAGE}_column=null reads no pictures"
        raise PromptError(f"{where}: `{image_column}`: {error}{hint}") from error
    return Prompt(edited, {**value, str(image_column): edited.source})
