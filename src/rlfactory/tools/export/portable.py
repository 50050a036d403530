"""Removes the paths of the training machine from what is published of a run."""

import json
import re
import shlex
from pathlib import Path, PurePath
from typing import Any

_END = r"""\s'",\[\]{}()"""
_INNER_PATH = re.compile(rf"(?<![\w.:~/-])(?:~|\.{{1,2}})?/(?:[^{_END}]*/)?([^{_END}]+)")
_LOCATIONS = ("_name_or_path", "name_or_path")
"""Keys in the JSON files of diffusers and transformers that say where something was loaded from."""


def without_folders(value: Any) -> Any:
    """A configuration with the names alone of files and folders that lie outside its own folder."""
    if isinstance(value, dict):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    return _text_without_folders(value) if isinstance(value, str) else value


def command_without_folders(command: str) -> str:
    """A command line with only the names of such files and folders."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quotation without an end
        return _text_without_folders(command)
    return shlex.join(_word_without_folders(word) for word in words)


def _word_without_folders(word: str) -> str:
    key, sign, value = word.rpartition("=")
    plain = value.strip("'\"")
    return f"{key}{sign}{value.replace(plain, _text_without_folders(plain))}"


def _text_without_folders(text: str) -> str:
    if text.startswith(("/", "~/", "./", "../")):
        return PurePath(text).name
    return _INNER_PATH.sub(r"\1", text)


def forget_locations(folder: Path) -> None:
    """Remove from JSON files where models and tokenizers were loaded from."""
    for path in folder.rglob("*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and any(content.pop(key, None) for key in _LOCATIONS):
            text = json.dumps(content, indent=2, ensure_ascii=False)
            path.write_text(text + "\n", encoding="utf-8")
