"""The checkpoints of a run on disk: their names, and the newest undamaged one."""

import logging
import re
from collections.abc import Callable
from pathlib import Path

from rlfactory.run.atomic_write import remove_all
from rlfactory.run.checkpoint.checksums import DamagedError, verify

WEIGHTS_FILE, OPTIMIZER_FILE = "weights.safetensors", "optimizer.safetensors"
STATE_FILE, SHARDS_FOLDER = "state.json", "shards"

log = logging.getLogger(__name__)


def checkpoint_of(checkpoints: Path, step: int) -> Path:
    """The folder of the checkpoint after `step` iterations."""
    return checkpoints / f"step_{step:06d}"


def all_checkpoints(checkpoints: Path) -> dict[int, Path]:
    """The folders with the name of a checkpoint, damaged ones too, by their step."""
    names = ((re.fullmatch(r"step_(\d+)", p.name), p) for p in checkpoints.glob("step_*"))
    return {int(match[1]): path for match, path in names if match}


def newest(checkpoints: Path, report: Callable[[str], None] | None = None) -> Path | None:
    """A run's last checkpoint whose checksums are right; None without one.

    Args:
        checkpoints: the run's folder of checkpoints.
        report: called with a line about each damaged checkpoint, which is then renamed, so it is
            not used again. Without it, as for commands that only read, damaged ones are skipped and
            named in the log.
    """
    for _, folder in sorted(all_checkpoints(checkpoints).items(), reverse=True):
        try:
            verify(folder)
        except (DamagedError, OSError) as error:
            renamed = "" if report is None else f"; it is kept as {put_aside(folder).name}"
            damage = f"checkpoint {folder.name} is damaged: {error}{renamed}"
            message = f"{damage}; the one before is used"
            log.warning(message)
            if report is not None:
                report(message)
        else:
            return folder
    return None


def put_aside(folder: Path) -> Path:
    """Rename a damaged checkpoint to `damaged_*`, so that it is no checkpoint by its name."""
    names = (f"damaged_{folder.name}{f'_{n}' if n else ''}" for n in range(10**6))
    new = next(p for name in names if not (p := folder.with_name(name)).exists())
    folder.rename(new)
    return new


def is_sharded(checkpoint: Path) -> bool:
    """Whether a checkpoint holds the shards of several ranks, and not full tensors."""
    return (checkpoint / SHARDS_FOLDER).is_dir()


def remove_unfinished(checkpoints: Path) -> None:
    """Remove checkpoints that were never finished; only the owner of a run may."""
    for folder in checkpoints.glob(".step_*"):
        remove_all(folder)
