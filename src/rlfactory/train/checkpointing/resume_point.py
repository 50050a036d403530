"""Resume point: the newest intact checkpoint of a run; restores the run folder and tensors to it.

Rank 0 looks at the disk and broadcasts what it found, so that all ranks resume from the same one.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch

from rlfactory.config.frozen import differences, format_diff, upgrade
from rlfactory.hardware.base import Hardware
from rlfactory.model.base import Model
from rlfactory.run.atomic_write import is_unfinished
from rlfactory.run.checkpoint.find import checkpoint_of, newest, remove_unfinished
from rlfactory.run.checkpoint.load import (
    explained_state,
    load_checkpoint,
    load_optimizer,
    load_state,
)
from rlfactory.run.environment import changes, numerics
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.metrics import keep_lines
from rlfactory.utils.data_files import mismatch
from rlfactory.utils.dotted_keys import Config
from rlfactory.utils.types import NonNegative, NonNegativeInt

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResumePoint:
    """A checkpoint to resume from, and the non-tensor state saved in it."""

    checkpoint: Path
    state: Mapping[str, Any]

    def load_tensors(self, model: Model, optimizer: torch.optim.Optimizer, config: Config) -> None:
        """Restore every weight set and the optimizer's state.

        Options of the optimizer that were changed since (with `--force`) stay changed.
        """
        load_checkpoint(self.checkpoint, model)
        former, own = self.state["config"].get("optimizer") or {}, config["optimizer"]
        if former.get("_target_") != own["_target_"]:
            raise RunFolderError(
                f"{self.checkpoint} has the moments of {former.get('_target_')}, and optimizer is"
                f" {own['_target_']}; begin a new run with begin_from={self.checkpoint.parents[1]}"
            )
        load_optimizer(self.checkpoint, optimizer, former != own, model)

    def warn_of_changes(
        self, hardware: Hardware, config: Config, say: Callable[[str], None]
    ) -> None:
        """Say, also in the log, what of that on which bits depend is not as it was."""
        now = numerics(hardware.device, config, hardware.world_size)
        if found := [*changes(self.checkpoint, now)]:
            name = self.checkpoint.name
            message = f"{name} was made elsewhere, so bits may differ ({'; '.join(found)})"
            log.warning("%s", message)
            say(message)


def find_resume_point(
    folder: RunFolder,
    hardware: Hardware,
    config: Config,
    *,
    force: bool,
    say: Callable[[str], None],
) -> ResumePoint | None:
    """The newest intact checkpoint; None where the run has none yet.

    Removes checkpoints that were never finished, and puts damaged ones aside, which it names to
    `say`.

    Raises:
        RunFolderError: the checkpoint was made with another configuration, and not `force`.
    """
    name = None
    if hardware.rank == 0:
        remove_unfinished(folder.checkpoints)
        checkpoint = newest(folder.checkpoints, say)
        name = checkpoint and checkpoint.name
    name = hardware.broadcast(name)
    if name is None:
        return None
    checkpoint = folder.checkpoints / name
    state = load_state(checkpoint)
    with explained_state(checkpoint):
        if problem := mismatch(state, _Counts):
            raise ValueError(problem)
        step = checkpoint_of(checkpoint.parent, state["iterations"])
        if step != checkpoint:
            raise ValueError(f"it is that of {step.name}")
        state["config"] = upgrade(state["config"])
    changes = differences(state["config"], upgrade(config))
    if config["learning_rate"]["final_scale"] == 1:
        # a longer run goes through the same states; with a decay it has other learning rates
        changes = [change for change in changes if change[0] != "iterations"]
    if changes and not force:
        raise RunFolderError(
            f"{checkpoint} was made with another configuration ({format_diff(changes)});"
            " add --force to resume with this one all the same"
        )
    return ResumePoint(checkpoint, state)


class _Counts(TypedDict):
    """The part of every checkpoint's state, besides what the components remember."""

    iterations: NonNegativeInt
    looked: int | None
    lines: NonNegativeInt
    timely: list[int]
    best: dict[str, Any]
    logger: dict[str, Any]
    updates: NonNegativeInt
    evaluations: NonNegativeInt
    seconds: NonNegative
    ended: str | None
    coefficients: dict[str, Any]
    advantage: dict[str, Any] | None
    reward: dict[str, Any]
    stop: dict[str, Any]
    hardware: dict[str, Any]
    config: dict[str, Any]
    advice: NotRequired[dict[str, str]]
    skipped: NotRequired[NonNegativeInt]


def rewind_run_folder(folder: RunFolder, hardware: Hardware, resume: ResumePoint | None) -> int:
    """Remove what was logged and drawn after the checkpoint, or all of it where there is none;
    returns the number of lines of metrics that are left.
    """
    state = {} if resume is None else resume.state
    lines = 0
    if hardware.rank == 0:
        lines = rewind(folder, state.get("iterations", -1), state.get("lines", 0))
    return hardware.broadcast(lines)


def rewind(folder: RunFolder, iteration: int, lines: int) -> int:
    """Restore a run folder as it was at a checkpoint; later iterations are logged again.

    Removes evaluations and images of iterations after `iteration`, unfinished files, and all but
    the first `lines` of the metrics. Returns how many lines there are: fewer than `lines` only if
    something else has changed the file.
    """
    for path in [*filter(is_unfinished, folder.path.rglob(".*"))]:
        path.unlink()
    # those of `rlfactory evaluate` are named by a date, which this does not match
    numbered = re.compile(r"(eval_)?\d{6,}(_\d+)?\.\w+")
    places = folder.evaluated_sets().values()
    kept = [p for f in places for p in (f.evaluations, f.samples, f.samples / "strip")]
    for part in kept:
        for path in [path for path in part.glob("*.*") if numbered.fullmatch(path.name)]:
            if int(re.findall(r"\d+", path.name)[0]) > iteration:
                path.unlink()
    return keep_lines(folder.metrics, lines)
