"""`rlfactory verify`: makes a stretch of a run again, and says whether it has the same bits.

Times and memory are not compared, nor what depends on when a run was saved or stopped.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import yaml

from rlfactory.config.frozen import differences, format_diff, upgrade
from rlfactory.config.user_code import named_code
from rlfactory.run.atomic_write import write_text
from rlfactory.run.checkpoint.checksums import DamagedError, read_manifest
from rlfactory.run.checkpoint.checksums import verify as verify_checksums
from rlfactory.run.checkpoint.find import all_checkpoints, checkpoint_of, reading
from rlfactory.run.checkpoint.load import load_state
from rlfactory.run.environment import NUMERICS, changes, read_environments
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.inputs import remember, with_inputs
from rlfactory.run.metrics import read
from rlfactory.tools.bit_differences import (
    checkpoint_differences,
    equally_sharded,
    evaluation_differences,
    metrics_differences,
)
from rlfactory.train.operations import VARIABLE, first_difference
from rlfactory.train.process.launch import run_or_launch
from rlfactory.train.process.run_arguments import RunArguments
from rlfactory.utils.console import print_error
from rlfactory.utils.current_folder import trust_names
from rlfactory.utils.processes import SIGNALS

Config = Mapping[str, Any]
QUIET = {"logger": {"_target_": "rlfactory.run.loggers.NoLogger"}, "max_minutes": None}
"""What is set for the repetition, so that nothing is sent anywhere."""
ONLY_AT_END = {"every": 0, "minutes": 0, "keep_every": 0, "best": False}
OUTPUT = "output.txt"


@dataclass(frozen=True)
class Stretch:
    """The iterations after `begin`, that of a checkpoint or 0, until `end`; `has_end` says whether
    there is a checkpoint of the end, to compare with.
    """

    begin: int
    end: int
    has_end: bool

    @property
    def words(self) -> str:
        """The iterations, counted from 1."""
        return f"iterations {self.begin + 1} to {self.end}"


def verify(
    path: Path,
    config: Config,
    iteration: int | None,
    moved: Mapping[str, str] | None = None,
    layout: Config | None = None,
) -> int:
    """Make a stretch of a run again in a temporary folder, and print how it differs.

    Args:
        iteration: the last iteration of the stretch; None: that of the newest checkpoint.
        moved: paths by key, where the run's model and files lie elsewhere now.
        layout: the configuration to make it again with, where it has other batches or processes.

    Returns:
        The exit code: 0 if all bits are equal, 1 if not, or if the stretch can't be made again.
    """
    folder, moved, held = RunFolder(path), moved or {}, ExitStack()
    try:
        # a run in training makes others meanwhile
        with reading(*all_checkpoints(folder.checkpoints).values()):
            stretch = find_stretch(folder, iteration)
            ends = [checkpoint_of(folder.checkpoints, n) for n in (stretch.begin, stretch.end)]
            held.enter_context(reading(*ends))
        if changed := [*config_differences(folder, config, stretch)]:
            return _report(stretch, changed)
        print(f"making {stretch.words} again", flush=True)
        with TemporaryDirectory(prefix="rlfactory_verify_") as name:
            place, compared = Path(name), "metrics"
            again = remake(folder, layout or config, stretch, moved, place / "again" / path.name)
            if stretch.has_end:
                pair = [checkpoint_of(run.checkpoints, stretch.end) for run in (folder, again)]
                optimizer = ", optimizer" if equally_sharded(*pair) else ""
                compared = f"metrics, evaluations, weights{optimizer}"
            found = [*stretch_differences(folder, again, stretch)]
            if found and layout is not None:
                begin = Stretch(stretch.begin, stretch.begin + 1, has_end=False)
                found.append(_first_operation(folder, (config, layout), begin, moved, place))
            return _report(stretch, found, [*environment_changes(folder, again, stretch)], compared)
    except (RunFolderError, OSError, ValueError) as error:
        print_error(str(error))
        return 1
    finally:
        held.close()


def _first_operation(
    folder: RunFolder,
    layouts: Sequence[Config],
    stretch: Stretch,
    moved: Mapping[str, str],
    place: Path,
) -> str:
    """The operation of the network that gives other bits in the second layout, in words."""
    sides = [place / f"layout_{number}" for number in range(len(layouts))]
    for side, config in zip(sides, layouts, strict=True):
        side.mkdir()
        os.environ[VARIABLE] = str(side)
        try:
            remake(folder, config, stretch, moved, side / "run")
        finally:
            del os.environ[VARIABLE]
    if name := first_difference(*sides):
        return f"the first operation that gives other bits for the same row: {name}"
    return (
        "no module of the network gives other bits for the same row before the first update: texts"
        " are padded to other lengths, or gradients are added in another order"
    )


def config_differences(folder: RunFolder, config: Config, stretch: Stretch) -> Iterator[str]:
    """How config.yaml differs from the configuration that the checkpoints were made with."""
    known = [stretch.begin, *([stretch.end] if stretch.has_end else [])]
    for step in filter(None, known):
        saved = upgrade(load_state(checkpoint_of(folder.checkpoints, step))["config"])
        # an extended run has more iterations than its checkpoints say
        if changed := [c for c in differences(saved, config) if c[0] != "iterations"]:
            yield f"config.yaml is not that of step_{step:06d}: {format_diff(changed)}"


def stretch_differences(folder: RunFolder, again: RunFolder, stretch: Stretch) -> Iterator[str]:
    """How a stretch differs from the one that was made again, a line for each kind of file."""
    if stretch.has_end:
        pair = [checkpoint_of(run.checkpoints, stretch.end) for run in (folder, again)]
        yield from checkpoint_differences(*pair)
    yield from metrics_differences(
        read(folder.metrics),
        read(again.metrics),
        (stretch.begin, stretch.end),
        is_done=folder.read_status() == "done",
    )
    yield from evaluation_differences(folder, again, stretch.begin + 1 if stretch.begin else 0)


def environment_changes(folder: RunFolder, again: RunFolder, stretch: Stretch) -> Iterator[str]:
    """Differences in what bits depend on from when the run was made."""
    then = checkpoint_of(folder.checkpoints, stretch.end if stretch.has_end else stretch.begin)
    now = read_manifest(checkpoint_of(again.checkpoints, stretch.end))
    if then.is_dir():
        yield from changes(then, now[NUMERICS])
    devices = dict.fromkeys(recorded.device for recorded in read_environments(folder.environment))
    if len(devices) > 1:
        yield f"the run has been on {len(devices)} devices: {', '.join(devices)}"


def _report(
    stretch: Stretch, found: Sequence[str], elsewhere: Sequence[str] = (), compared: str = ""
) -> int:
    """Print the differences, or that there are none; returns the exit code."""
    if not found:
        print(f"verified: {stretch.words} give the same bits again ({compared})")
        return 0
    print(f"{stretch.words} are not what the folder holds:")
    for line in found:
        print(f"  {line}")
    for line in elsewhere or ["nothing that is recorded: device, threads, versions, batch layout"]:
        print(f"  other than then: {line}")
    return 1


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
            verify_checksums(checkpoint_of(folder.checkpoints, step))
        except DamagedError as error:
            raise RunFolderError(f"checkpoint step_{step:06d} is damaged: {error}") from error
    return Stretch(begin, end, end in steps)


def remake(
    folder: RunFolder, config: Config, stretch: Stretch, moved: Mapping[str, str], place: Path
) -> RunFolder:
    """Train the iterations of a stretch again, in the folder `place`, and return it as a run's.

    What training prints goes to its file `output.txt`. The run `folder` stays as it is.

    Raises:
        RunFolderError: training ended with an error, which it has printed.
        SystemExit: a signal stopped it.
    """
    copy = RunFolder(place)
    _copy(folder, copy, stretch)
    quiet = {**config, **QUIET, "checkpoint": {**config["checkpoint"], **ONLY_AT_END}}
    write_text(copy.config, yaml.safe_dump(quiet, sort_keys=False, allow_unicode=True))
    remember(copy, moved)
    # the command has refused what may not run, by the places in the run's own folder
    trust_names(code for _, code in named_code(with_inputs(quiet, copy)))
    # forced, since the checkpoint has another logger; the command has compared the configurations
    arguments = RunArguments(place, until=stretch.end, force=True, temporary=True)
    with (place / OUTPUT).open("w", encoding="utf-8") as output, _printing_to(output):
        code = run_or_launch(arguments, quiet)
    if code - 128 in SIGNALS:
        sys.exit(code)
    if code != 0:
        raise RunFolderError(f"the stretch can't be made again: training ended with code {code}")
    return copy


@contextmanager
def _printing_to(output: IO[str]) -> Iterator[None]:
    """A block in which the output of this process, and of those that it starts, goes to a file."""
    terminal = os.dup(1)
    os.dup2(output.fileno(), 1)
    try:
        with redirect_stdout(output):
            yield
    finally:
        os.dup2(terminal, 1)
        os.close(terminal)


def _copy(folder: RunFolder, copy: RunFolder, stretch: Stretch) -> None:
    """Copy what a run needs that resumes at the stretch's begin; later files it removes itself."""
    for part in copy.parts:
        part.mkdir(parents=True)
    copy.set_status("interrupted")
    parts = [folder.inputs]
    if stretch.begin:
        begin = checkpoint_of(folder.checkpoints, stretch.begin).relative_to(folder.path)
        shutil.copytree(folder.path / begin, copy.path / begin)
        shutil.copyfile(folder.metrics, copy.metrics)
        parts += [folder.evaluations, folder.samples, folder.prompt_sets]
    for part in filter(Path.is_dir, parts):
        shutil.copytree(part, copy.path / part.name, dirs_exist_ok=True)
