"""The checkpoints of a run on disk: their names, the newest undamaged one, the best, which stay."""

import logging
import math
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from rlfactory.run.atomic_write import remove_all, write_json
from rlfactory.run.checkpoint.checksums import MANIFEST_FILE, DamagedError, verify
from rlfactory.utils.data_files import read_json
from rlfactory.utils.fault_injection import fault_point

if TYPE_CHECKING:
    from rlfactory.run.scores import Scores

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

    `report` is called with a line about each damaged one, which is then renamed, so it is not used
    again. Without it, as for commands that only read, these are skipped and named in the log.
    """
    for _, folder in sorted(all_checkpoints(checkpoints).items(), reverse=True):
        try:
            verify(folder)
        except (DamagedError, OSError) as error:
            if not folder.is_dir():  # removed just now by the process that trains, for a newer one
                return newest(checkpoints, report)
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


BEST_FILE = "best.json"


class _Content(TypedDict):
    """The content of best.json, besides the score by its name."""

    step: int


@dataclass
class Best:
    """Tracks the step with the best evaluation mean of the score `main`, and writes best.json.

    The best is the highest, or the lowest of a score of which the evaluation says so.

    With `kl`, only steps whose KL divergence from the reference, in nats a token, is at most that.
    """

    checkpoints: Path
    main: str
    kl: float | None = None
    score: float = -math.inf
    step: int | None = None

    def beaten_by(self, scores: "Scores") -> bool:
        """Whether an evaluation is better than all before; NaN never is."""
        if self.kl is not None and scores.kl > self.kl:
            return False
        mean, falls = scores.means()[self.main], scores.better.get(self.main) == "lower"
        return mean < self.score if falls and self.step is not None else mean > self.score

    def take(self, step: int, scores: "Scores") -> None:
        """Make `step` the best one."""
        self.step, self.score = step, scores.means()[self.main]

    def write(self) -> None:
        """Write the step to best.json if its checkpoint exists; else remove the file."""
        path = self.checkpoints / BEST_FILE
        if self.step is None or not checkpoint_of(self.checkpoints, self.step).is_dir():
            path.unlink(missing_ok=True)
            return
        write_json(path, {"step": self.step, self.main: self.score})

    def state_dict(self) -> dict[str, Any]:
        """The step and its score."""
        return {"step": self.step, "score": self.score}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        step, score = state["step"], state["score"]
        self.step, self.score = None if step is None else int(step), float(score)


def best_step(checkpoints: Path) -> int | None:
    """The step in best.json; None where a run has kept no best checkpoint, FileError where it
    can't be read.
    """
    remedy = "leave out --best, or remove it: the next checkpoint writes it again"
    try:
        return int(read_json(checkpoints / BEST_FILE, _Content, remedy=remedy)["step"])
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class Retention:
    """Keeps the newest checkpoint, the best, every `keep_every`-th iteration's (0: none), and the
    last `keep` (None: all) of the scheduled ones.
    """

    keep: int | None
    keep_every: int

    def staying(
        self, steps: Collection[int], scheduled: Collection[int], best: int | None
    ) -> set[int]:
        """The `steps` that keep their checkpoint, of those that have one."""
        regular = sorted({*steps} & {*scheduled})
        last = regular if self.keep is None else regular[-self.keep :]
        marked = [s for s in steps if self.keep_every and s % self.keep_every == 0]
        others = {best, max(steps, default=None)}
        return {*last, *marked} | {step for step in steps if step in others}

    def clear(self, checkpoints: Path, scheduled: Collection[int], best: int | None) -> None:
        """Remove the others; damaged ones that were renamed stay."""
        folders = all_checkpoints(checkpoints)
        staying = self.staying(folders.keys(), scheduled, best)
        for step in folders.keys() - staying:
            remove(folders[step])


@contextmanager
def reading(*folders: Path) -> Iterator[None]:
    """Within the block the process that trains a run removes none of these checkpoints, where their
    disk has locks. One that is gone already is none.
    """
    with ExitStack() as stack:
        for folder in folders:
            with suppress(OSError):
                flock(stack.enter_context((folder / MANIFEST_FILE).open("rb")), LOCK_SH)
        yield


def remove(folder: Path) -> None:
    """Remove a checkpoint, unless another process reads it; the next one is a time to try again.

    It is renamed first: half of one must not look like a checkpoint.
    """
    doomed = folder.with_name(f".{folder.name}.removed")
    with ExitStack() as stack:
        try:
            manifest = stack.enter_context((folder / MANIFEST_FILE).open("rb+"))
            flock(manifest, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            return
        except OSError:  # it has no manifest, or the disk no locks
            pass
        folder.rename(doomed)
    fault_point("removing")
    shutil.rmtree(doomed)
