"""The keys that were typed for a run, as its folder records them."""

import ast
import shlex

from rlfactory.config.problems import override_key
from rlfactory.run.folder import RunFolder
from rlfactory.utils.data_files import read_text

_PYTHON = "rlfactory.train"
LARGEST = 2**20
"""Bytes of a command."""


def typed_keys(folder: RunFolder) -> frozenset[str] | None:
    """The keys and groups in a run's `command.txt`.

    None where that does not say all: a folder of an earlier version, or live objects from Python.
    """
    if folder.objects.exists():
        return None
    try:
        words = _words(read_text(folder.command, largest=LARGEST).strip())
    except (FileNotFoundError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return frozenset(override_key(word.lstrip("-")) for word in words if "=" in word)


def _words(command: str) -> list[str]:
    """The overrides of `rlfactory KEY=VALUE ...` or `rlfactory.train('KEY=VALUE', ...)`."""
    if not command.startswith(_PYTHON):
        return shlex.split(command)[1:]
    inner = command.removeprefix(f"{_PYTHON}(").removesuffix(")")
    return [str(word) for word in ast.literal_eval(f"[{inner}]")] if inner else []
