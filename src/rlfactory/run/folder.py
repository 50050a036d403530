"""The run folder: the paths of everything a run writes, and its status."""

import os
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rlfactory.run.atomic_write import is_unfinished, remove_all, write_text
from rlfactory.utils.console import size
from rlfactory.utils.data_files import FileError, read_text
from rlfactory.utils.errors import UserError

LARGEST_STATUS = 1000
"""Bytes."""
Status = Literal["running", "done", "failed", "paused", "interrupted", "preempted"]


class RunFolderError(UserError, RuntimeError):
    """A run folder that cannot be used; the message says why and what to type instead."""


class NoRoomError(RunFolderError):
    """Too little free space on the disk."""


class _Inside:
    """A path in a run folder, as an attribute of it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: "RunFolder", kind: object = None) -> Path:
        return folder.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """The paths in a run folder; constructing it touches no file."""

    path: Path

    config = _Inside("config.yaml")
    """The frozen configuration: all that the training processes read."""
    plan = _Inside("plan.txt")
    """The plan as `rlfactory check` prints it."""
    command = _Inside("command.txt")
    """The command that started the run; none if it was not started by one."""
    prompt = _Inside("prompt.txt")
    """A prompt of the evaluations as a language model is given it."""
    completion = _Inside("completion.txt")
    """What is learned after that prompt, where the data give it."""
    objects = _Inside("objects.json")
    """Descriptions of the live objects that a Python caller handed over; none without any."""
    inputs = _Inside("inputs")
    """Copies of the files that the run reads, see `run/inputs.py`; none without any."""
    metrics = _Inside("metrics.jsonl")
    """One JSON object per line, see `MetricsLog`."""
    status = _Inside("STATUS")
    """One word: running, done, failed, paused (`--until`), interrupted (by hand) or preempted (by
    the machine)."""
    log = _Inside("log.txt")
    """Log messages, warnings and the traceback of a failure."""
    checkpoints = _Inside("checkpoints")
    """The folder of checkpoints, see `run/checkpoint`."""
    samples = _Inside("samples")
    """The folder of samples: image grids or tables of texts."""
    evaluations = _Inside("evaluations")
    """The folder of `Scores`, one file per evaluation."""
    evidence = _Inside("evidence")
    """The folder of inputs of optimizer steps that were skipped as not finite."""
    inspection = _Inside("inspect")
    """The folder that `rlfactory inspect` writes."""
    curves = _Inside("curves.png")
    """The plot of the metrics over the iterations."""
    summary = _Inside("summary.md")
    """The summary of results, in Markdown."""
    page = _Inside("index.html")
    """The page with all results of the run."""
    environment = _Inside("environment.json")
    """Device, versions and git commit of each process that trained the run."""
    strip = _Inside("samples/strip.png")
    """The image of the same prompts' samples over training."""
    prompt_sets = _Inside("prompt_sets")
    """The folder of further prompt sets' evaluations; none without any."""

    @property
    def parts(self) -> tuple[Path, ...]:
        """The subfolders that every run has."""
        return (self.checkpoints, self.samples, self.evaluations)

    def grid(self, iteration: int) -> Path:
        """The image grid of the evaluation after `iteration` iterations."""
        return self.samples / f"eval_{iteration:06d}.png"

    def shown(self) -> dict[int, Path]:
        """The image grid or the table of texts of each evaluation in training, by iteration."""
        files = [*self.samples.glob("eval_*.png"), *self.samples.glob("eval_*.md")]
        names = {path: path.stem.removeprefix("eval_") for path in files}
        # a pipe, for one, would be waited for
        found = {int(n): path for path, n in names.items() if n.isdecimal() and path.is_file()}
        return dict(sorted(found.items()))

    def evaluation(self, iteration: int) -> Path:
        """The scores of the evaluation after `iteration` iterations."""
        return self.evaluations / f"{iteration:06d}.json"

    def prompt_set(self, name: str) -> "RunFolder":
        """The evaluations and samples of a further prompt set, by the same names as the run's; of
        the empty name the run's own.
        """
        return RunFolder(self.prompt_sets / name) if name else self

    def evaluated_sets(self) -> dict[str, "RunFolder"]:
        """The run's own by the empty name, and those of the further sets that were evaluated."""
        found = sorted(path.name for path in self.prompt_sets.glob("*") if path.is_dir())
        return {name: self.prompt_set(name) for name in ["", *found]}

    @classmethod
    def create(cls, path: Path, *, clear: bool = False) -> "RunFolder":
        """Make a new run folder; RunFolderError if it is not empty or cannot be written.

        With `clear` it replaces a run in that folder, of which everything is removed.
        """
        folder = cls(path)
        if not clear:
            require_unused(path)
        try:
            if clear:
                folder._clear()
            path.mkdir(parents=True, exist_ok=True)
            for part in folder.parts:
                part.mkdir(exist_ok=True)
            folder.set_status("running")
        except OSError as error:
            raise not_writable(path, error) from error
        return folder

    def _clear(self) -> None:
        """Remove what a run wrote; other files stay."""
        for part in (*self.parts, self.inputs, self.evidence, self.prompt_sets):
            remove_all(part)
        own = (self.plan, self.command, self.objects, self.metrics, self.curves, self.summary)
        for file in (*own, *self.path.glob("config*.yaml"), *self.path.glob("log*.txt")):
            file.unlink(missing_ok=True)

    @property
    def has_checkpoint(self) -> bool:
        """Whether the run has saved anything that it learned, damaged or not."""
        return any(p.name.startswith(("step_", "damaged_")) for p in self.checkpoints.glob("*"))

    def require_separate_parts(self) -> None:
        """RunFolderError if a subfolder is a link into this folder; one to another disk is fine."""
        run = os.path.realpath(self.path)  # `resolve` raises for a link to itself
        for part in self.parts:
            if part.is_symlink() and Path(os.path.realpath(part)).is_relative_to(run):
                name = shlex.quote(str(part))
                raise RunFolderError(
                    f"{part} is a link into the run folder itself, where its files would mix with"
                    f" others; put a folder there: rm {name} && mkdir {name}"
                )

    def set_status(self, status: Status) -> None:
        """Write STATUS."""
        write_text(self.status, f"{status}\n")

    def read_status(self) -> Status:
        """The status; RunFolderError if this is not a run folder, or STATUS can't be read."""
        words = ", ".join(get_args(Status))
        remedy = f"it holds one of the words {words}; write that of this run there"
        try:
            word = read_text(self.status, remedy=remedy, largest=LARGEST_STATUS).strip()
        except FileNotFoundError:
            raise RunFolderError(f"{self.path} is not a run folder: it has no STATUS") from None
        except FileError as error:
            raise RunFolderError(str(error)) from error
        for status in get_args(Status):
            if word == status:
                return status
        raise RunFolderError(f"{self.status}: the status {ascii(word[:40])} is unknown; {remedy}")


def require_unused(path: Path) -> None:
    """RunFolderError if no run can start in the folder `path`; leaves nothing there."""
    try:
        existing = _first_existing(path)
        used = next((p for p in existing.iterdir() if _is_used(RunFolder(existing), p)), None)
        try_to_write(existing)
    except OSError as error:
        raise not_writable(path, error) from error
    if path.exists() and used is not None:
        others = (path.with_name(f"{path.name}_{n}") for n in range(2, 10**6))
        free = next(other for other in others if not other.exists())
        raise RunFolderError(
            f"run_dir: {path} is not empty (it holds {used.name}), and nothing is overwritten; "
            f"type run_dir={free}, or leave run_dir out for a new folder"
        )


def try_to_write(folder: Path) -> None:
    """OSError where no file can be made in a folder.

    Permissions don't tell: root may write anywhere, and can't in /proc.
    """
    with tempfile.TemporaryFile(dir=folder):
        pass


def _is_used(folder: RunFolder, entry: Path) -> bool:
    """Whether a file in a folder is none of those that `create` makes again.

    So a run that was killed while it made its folder can be started once more.
    """
    if entry in folder.parts and entry.is_dir():
        return any(entry.iterdir())
    own = (folder.plan, folder.command, folder.status, folder.objects, folder.inputs)
    return not is_unfinished(entry) and not (folder.status.is_file() and entry in own)


def enough_space(path: Path, needed: int) -> None:
    """NoRoomError unless the disk of `path`, which need not exist yet, has `needed` bytes free."""
    free = shutil.disk_usage(_first_existing(path)).free
    if free < needed:
        raise NoRoomError(
            f"{path}: {size(needed)} needed, {size(free)} free; make room, or put the run on "
            "another disk with run_dir=FOLDER"
        )


def _first_existing(path: Path) -> Path:
    """The path, or the first of its parents that exists."""
    return next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())


def not_writable(path: Path, error: OSError) -> RunFolderError:
    """The error of a run folder in which a file can't be made."""
    reason = error.strerror or str(error)
    if os.path.islink(path) and not os.path.exists(path):
        reason = f"a link to {path.readlink()}, which is not there"
    return RunFolderError(
        f"run_dir: {path} cannot be written ({reason}); type run_dir=FOLDER with one that can"
    )
