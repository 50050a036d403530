"""Atomic writes: a file has its old or its new content, never a part of it."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".unfinished"


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file: to a temporary file beside it, flushed to the disk, then renamed."""
    with new_file(path) as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, value: object, *, allow_nan: bool = True) -> None:
    """Write a value as JSON that people can read, by `write_text`."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=allow_nan) + "\n")


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A temporary file beside `path` to write, which is renamed to it at the end. So nothing is
    written through a link or a pipe, which may come from somebody else.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        # mkstemp makes files that only their owner reads; colleagues often read run folders
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def is_unfinished(path: Path) -> bool:
    """Whether a file is a temporary one, being written now or left by a killed process."""
    return path.name.startswith(".") and path.name.endswith(UNFINISHED)


def remove_all(path: Path) -> None:
    """Remove a folder with all in it, as far as that is possible, or what else lies there.

    Not by `rmtree` alone, which would wait for a pipe.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
