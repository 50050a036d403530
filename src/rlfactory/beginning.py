"""Where a sitting begins: at the newest checkpoint, which the process that leads looks for."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlfactory.hardware.base import Hardware
from rlfactory.run.checkpoint import load_state, newest, sweep
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.rewind import rewind
from rlfactory.sameness import differences, told

Config = Mapping[str, Any]


def beginning(folder: RunFolder, hardware: Hardware, tell: Callable[[str], None]) -> Path | None:
    """The checkpoint to go on from, if there is one; what was never finished is removed."""
    found: Path | None = None
    if hardware.rank == 0:
        sweep(folder.checkpoints)
        found = newest(folder.checkpoints, tell)
    name = hardware.tell(None if found is None else found.name)
    return None if name is None else folder.checkpoints / name


def rewound(folder: RunFolder, hardware: Hardware, state: Mapping[str, Any]) -> int:
    """How many lines of metrics there are, once the folder is as a checkpoint's state knew it."""
    there = 0
    if hardware.rank == 0:
        there = rewind(folder, state.get("iterations", -1), state.get("lines", 0))
    return hardware.tell(there)


def agreeing(begin: Path, config: Config, force: bool) -> dict[str, Any]:
    """The state of a checkpoint; RunFolderError if another configuration made it, unless forced."""
    state = load_state(begin)
    if (found := differences(state["config"], config)) and not force:
        raise RunFolderError(
            f"{begin} was made with another configuration ({told(found)}); add --force to go on"
            " with this one all the same"
        )
    return state
