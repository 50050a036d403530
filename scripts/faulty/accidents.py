"""What an attempt can be made to live through before it begins, besides faults at a point."""

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def unadorned() -> None:
    """Draw no page and curves, which take longer than a small run and are no part of what is
    resumed.
    """
    from rlfactory.report import results

    assert callable(results.draw_run)  # another name would be set in vain
    results.draw_run = lambda folder, *_: folder.page  # type: ignore[assignment]


def full_disk(writes: int) -> None:
    """Let so many files of tensors be written to checkpoints, and no more."""
    from rlfactory.run.checkpoint import save

    unadorned()
    save.save_file = _failing(save.save_file, writes)


def _failing(save: Callable[..., None], writes: int) -> Callable[..., None]:
    left = [writes]

    def save_or_fail(tensors: Mapping[str, Any], path: Path) -> None:
        left[0] -= 1
        if left[0] < 0:
            Path(path).write_bytes(b"\0" * 100)  # a part of it
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        save(tensors, path)

    return save_or_fail
