"""Makes a stretch of a run again, from a copy of its folder as it was where the stretch begins."""

import shutil
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlfactory.run.atomic_write import write_text
from rlfactory.run.checkpoint.checksums import DamagedError, verify
from rlfactory.run.checkpoint.find import all_checkpoints, checkpoint_of
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.inputs import remember
from rlfactory.train.process.arguments import RunArguments
from rlfactory.train.process.launch import run_or_launch

Config = Mapping[str, Any]
QUIET = {"logger": {"_target_": "rlfactory.run.loggers.NoLogger"}, "max_minutes": None}
"""What is set for the repetition, so that nothing is sent anywhere."""
ONLY_AT_END = {"every": 0, "minutes": 0, "keep_every": 0, "best": False}
OUTPUT = "output.txt"


@dataclass(frozen=True)
class Stretch:
    """The iterations after `begin`, until `end`.

    Attributes:
        begin: the iteration of the checkpoint to begin from; 0: the beginning of the run.
        end: the last iteration.
        has_end: whether there is a checkpoint of the end, to compare with.
    """

    begin: int
    end: int
    has_end: bool

    @property
    def words(self) -> str:
        """The iterations, counted from 1."""
        return f"iterations {self.begin + 1} to {self.end}"


def find_stretch(folder: RunFolder, iteration: int | None) -> Stretch:
    """The stretch between a run's last two checkpoints; or from the last checkpoint before
    `iteration` until that.

    Raises:
        RunFolderError: there is no checkpoint, the run has not come so far, or a checkpoint is
            damaged.
    """
    steps = sorted(all_checkpoints(folder.checkpoints))
    if not steps:
        raise RunFolderError(f"{folder.path} holds no checkpoint, so there is nothing to verify")
    end = steps[-1] if iteration is None else iteration
    if end > steps[-1]:
        raise RunFolderError(f"--iteration {end}: the last checkpoint is of iteration {steps[-1]}")
    begin = max((step for step in steps if step < end), default=0)
    for step in {begin, end} & {*steps}:
        try:
            verify(checkpoint_of(folder.checkpoints, step))
        except DamagedError as error:
            raise RunFolderError(f"checkpoint step_{step:06d} is damaged: {error}") from error
    return Stretch(begin, end, end in steps)


def remake(
    folder: RunFolder, config: Config, stretch: Stretch, moved: Mapping[str, str], place: Path
) -> RunFolder:
    """Train the iterations of a stretch again, in the folder `place`, and return it as a run's.

    What training prints goes to its file `output.txt`.

    Args:
        folder: the run, of which nothing is changed.
        config: its configuration.
        stretch: the iterations.
        moved: paths by key, where the run's model and files lie elsewhere now.
        place: a folder that does not exist.

    Raises:
        RunFolderError: training ended with an error, which it has printed.
    """
    copy = RunFolder(place)
    _copy(folder, copy, stretch)
    quiet = {**config, **QUIET, "checkpoint": {**config["checkpoint"], **ONLY_AT_END}}
    write_text(copy.config, yaml.safe_dump(quiet, sort_keys=False, allow_unicode=True))
    remember(copy, moved)
    # forced, since the checkpoint has another logger; the command has compared the configurations
    arguments = RunArguments(place, until=stretch.end, force=True)
    with (place / OUTPUT).open("w", encoding="utf-8") as output, redirect_stdout(output):
        code = run_or_launch(arguments, quiet)
    if code != 0:
        raise RunFolderError(f"the stretch can't be made again: training ended with code {code}")
    return copy


def _copy(folder: RunFolder, copy: RunFolder, stretch: Stretch) -> None:
    """Copy what a run needs that resumes at the stretch's begin; later files it removes itself."""
    copy.path.mkdir(parents=True)
    for part in copy.parts:
        part.mkdir()
    copy.set_status("interrupted")
    for own in (folder.inputs, *([folder.evaluations, folder.samples] if stretch.begin else [])):
        if own.is_dir():
            shutil.copytree(own, copy.path / own.name, dirs_exist_ok=True)
    if stretch.begin:
        checkpoint = checkpoint_of(folder.checkpoints, stretch.begin)
        shutil.copytree(checkpoint, copy.checkpoints / checkpoint.name)
        shutil.copyfile(folder.metrics, copy.metrics)
        if folder.prompt_sets.is_dir():
            shutil.copytree(folder.prompt_sets, copy.prompt_sets)
