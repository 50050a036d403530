"""The run folder: one place that holds all of an experiment, and where each thing is in it."""

import errno
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rlfactory.run.atomic import is_unfinished, write_text
from rlfactory.run.format import size

Status = Literal["running", "done", "failed", "interrupted", "preempted"]

log = logging.getLogger(__name__)


class RunFolderError(RuntimeError):
    """A run folder that cannot be used; the message says why and what to type."""


class NoRoomError(RunFolderError):
    """A disk that has too little left."""


class _Log(logging.FileHandler):
    """The log of a run, which a disk that takes no more must not end, nor fill the screen."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Let a message that can't be written go."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        """What is left to be written may be lost."""
        with suppress(OSError):
            super().close()


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run; making one touches no file."""

    path: Path

    @property
    def config(self) -> Path:
        """The frozen configuration, all that a worker reads."""
        return self.path / "config.yaml"

    @property
    def plan(self) -> Path:
        """The plan as it was printed."""
        return self.path / "plan.txt"

    @property
    def command(self) -> Path:
        """What was typed, in one line; a folder made otherwise has none."""
        return self.path / "command.txt"

    @property
    def metrics(self) -> Path:
        """One JSON object per line, see `MetricsLog`."""
        return self.path / "metrics.jsonl"

    @property
    def status(self) -> Path:
        """One word: running, done, failed, interrupted (by hand) or preempted (by the machine)."""
        return self.path / "STATUS"

    @property
    def log(self) -> Path:
        """Log messages, warnings and the traceback of a failure."""
        return self.path / "log.txt"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def samples(self) -> Path:
        """Folder of pictures."""
        return self.path / "samples"

    @property
    def evaluations(self) -> Path:
        """Folder of `Scores`, one file per evaluation."""
        return self.path / "evaluations"

    @property
    def evidence(self) -> Path:
        """Folder of what updates that were not made would have come from."""
        return self.path / "evidence"

    @property
    def inspection(self) -> Path:
        """Folder of what a look inside found."""
        return self.path / "inspect"

    @property
    def curves(self) -> Path:
        """The metrics drawn over the iterations."""
        return self.path / "curves.png"

    @property
    def summary(self) -> Path:
        """What came of it, in Markdown."""
        return self.path / "summary.md"

    @property
    def strip(self) -> Path:
        """The same prompts over training."""
        return self.samples / "strip.png"

    @property
    def parts(self) -> tuple[Path, ...]:
        """The folders that every run has."""
        return (self.checkpoints, self.samples, self.evaluations)

    def grid(self, iteration: int) -> Path:
        """The pictures of the evaluation after `iteration` iterations."""
        return self.samples / f"eval_{iteration:06d}.png"

    def evaluation(self, iteration: int) -> Path:
        """The scores of the evaluation after `iteration` iterations."""
        return self.evaluations / f"{iteration:06d}.json"

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """Make a fresh folder; RunFolderError if it is in use or cannot be written."""
        folder = cls(path)
        require_unused(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            for part in folder.parts:
                part.mkdir(exist_ok=True)
            folder.set_status("running")
        except OSError as error:
            raise _unusable(path, error) from error
        return folder

    def set_status(self, status: Status) -> None:
        """Replace the word in STATUS."""
        write_text(self.status, f"{status}\n")

    def read_status(self) -> Status:
        """The word in STATUS; RunFolderError if this is not a run folder."""
        word = self.status.read_text(encoding="utf-8").strip() if self.status.is_file() else None
        for status in get_args(Status):
            if word == status:
                return status  # type: ignore[no-any-return]
        found = "has no STATUS" if word is None else f"has the unknown STATUS {word!r}"
        raise RunFolderError(f"{self.path} is not a run folder: it {found}")

    @contextmanager
    def attach_log(self, rank: int = 0) -> Iterator[None]:
        """Send our log messages, everyone's warnings and a passing exception to log.txt.

        A process of another rank has a log of its own, there once it has an error to tell.
        """
        path = self.log if rank == 0 else self.path / f"log_rank{rank}.txt"
        handler = _Log(path, encoding="utf-8", delay=rank > 0)
        handler.setLevel(logging.ERROR if rank else logging.NOTSET)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        ours, root = logging.getLogger("rlfactory"), logging.getLogger()
        level = ours.level
        ours.setLevel(logging.INFO)
        root.addHandler(handler)
        logging.captureWarnings(True)
        try:
            yield
        except Exception:
            # the terminal shows one clear line, the traceback is for whoever looks into it;
            # straight to the handler, so that it is not also shown where others listen
            handler.handle(_failure())
            raise
        finally:
            logging.captureWarnings(False)
            root.removeHandler(handler)
            ours.setLevel(level)
            handler.close()


def require_unused(path: Path) -> None:
    """RunFolderError if no run can begin at `path`; touches nothing."""
    try:
        place = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
        used = next(filter(_is_used(place), place.iterdir()), None)
        if not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unusable(path, error) from error
    if path.exists() and used is not None:
        raise RunFolderError(
            f"run_dir: {path} is not empty (it holds {used.name}), and nothing is overwritten; "
            f"type run_dir={_free_name(path)}, or leave run_dir out for a new folder"
        )


def _is_used(path: Path) -> Callable[[Path], bool]:
    """What tells if something in a folder is more than what is left of a run that was killed while
    it made the folder: that can be made again.
    """
    folder = RunFolder(path)
    first = (folder.plan, folder.command, folder.status) if folder.status.is_file() else ()

    def is_used(place: Path) -> bool:
        if place in folder.parts and place.is_dir():
            return any(place.iterdir())
        return place not in first and not is_unfinished(place)

    return is_used


def enough_space(path: Path, needed: int) -> None:
    """NoRoomError unless the disk that holds `path` (or will) has `needed` bytes free."""
    place = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        raise NoRoomError(
            f"{path}: {size(needed)} needed, {size(free)} free; make room, or put the run on "
            "another disk with run_dir=FOLDER"
        )


def _unusable(path: Path, error: OSError) -> RunFolderError:
    reason = error.strerror or str(error)
    return RunFolderError(
        f"run_dir: {path} cannot be written ({reason}); type run_dir=FOLDER with one that can"
    )


def _free_name(path: Path) -> Path:
    return next(
        p for n in range(2, 10**6) if not (p := path.with_name(f"{path.name}_{n}")).exists()
    )


def _failure() -> logging.LogRecord:
    message = "the run failed"
    return log.makeRecord(log.name, logging.ERROR, __file__, 0, message, (), sys.exc_info())
