"""Files that are either the old or the new ones, never half of one."""

import os
import tempfile
from pathlib import Path

UNFINISHED = ".unfinished"


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file beside its place, flush it to the disk, then rename it into place."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for the owner alone; a run folder is often read by colleagues
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def is_unfinished(path: Path) -> bool:
    """Whether a file was still being written when its writer was killed, or is now."""
    return path.name.startswith(".") and path.name.endswith(UNFINISHED)


def flush(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
