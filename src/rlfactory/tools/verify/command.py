"""`rlfactory verify`: makes a stretch of a run again, and says whether it has the same bits."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlfactory.config.compat import upgrade
from rlfactory.config.diff import differences, format_diff
from rlfactory.run.checkpoint.checksums import read_manifest
from rlfactory.run.checkpoint.find import checkpoint_of
from rlfactory.run.checkpoint.load import load_state
from rlfactory.run.checkpoint.numerics import KEY as NUMERICS
from rlfactory.run.checkpoint.numerics import changes
from rlfactory.run.environment import read_environments
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.metrics import read
from rlfactory.tools.verify.compare import (
    checkpoint_differences,
    evaluation_differences,
    metrics_differences,
)
from rlfactory.tools.verify.remake import Stretch, find_stretch, remake
from rlfactory.utils.console import print_error

Config = Mapping[str, Any]


def verify(
    path: Path, config: Config, iteration: int | None, moved: Mapping[str, str] | None = None
) -> int:
    """Make a stretch of a run again in a temporary folder, and print how it differs.

    Args:
        path: the run folder, which is only read.
        config: its configuration.
        iteration: the last iteration of the stretch; None: that of the newest checkpoint.
        moved: paths by key, where the run's model and files lie elsewhere now.

    Returns:
        The exit code: 0 if all bits are equal, 1 if not, or if the stretch can't be made again.
    """
    folder = RunFolder(path)
    elsewhere: list[str] = []
    try:
        stretch = find_stretch(folder, iteration)
        found = [*config_differences(folder, config, stretch)]
        if not found:
            print(f"making {stretch.words} again", flush=True)
            with TemporaryDirectory(prefix="rlfactory_verify_") as place:
                again = remake(folder, config, stretch, moved or {}, Path(place) / path.name)
                found = [*stretch_differences(folder, again, stretch)]
                elsewhere = [*environment_changes(folder, again, stretch)]
    except (RunFolderError, OSError, ValueError) as error:
        print_error(str(error))
        return 1
    return _report(stretch, found, elsewhere)


def config_differences(folder: RunFolder, config: Config, stretch: Stretch) -> Iterator[str]:
    """How config.yaml differs from the configuration that the checkpoints were made with."""
    steps = [step for step in (stretch.begin, stretch.end) if step]
    for step in steps if stretch.has_end else steps[:-1]:
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
    """What of that on which bits depend was otherwise when the run was made."""
    then = checkpoint_of(folder.checkpoints, stretch.end if stretch.has_end else stretch.begin)
    now = read_manifest(checkpoint_of(again.checkpoints, stretch.end))
    if then.is_dir():
        yield from changes(then, now[NUMERICS])
    devices = dict.fromkeys(recorded.device for recorded in read_environments(folder.environment))
    if len(devices) > 1:
        yield f"the run has been on {len(devices)} devices: {', '.join(devices)}"


def _report(stretch: Stretch, found: Sequence[str], elsewhere: Sequence[str]) -> int:
    """Print the differences, or that there are none; returns the exit code."""
    if not found:
        compared = "metrics, evaluations, weights, optimizer" if stretch.has_end else "metrics"
        print(f"verified: {stretch.words} give the same bits again ({compared})")
        return 0
    print(f"{stretch.words} are not what the folder holds:")
    for line in found:
        print(f"  {line}")
    for line in elsewhere or ["nothing that is recorded: device, threads, versions, batch layout"]:
        print(f"  other than then: {line}")
    return 1
