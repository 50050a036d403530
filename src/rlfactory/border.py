"""Where a run stands between two of its iterations, and the way back there from within one."""

import logging
from collections.abc import Mapping
from typing import Any

from rlfactory.keeping import Keeper
from rlfactory.run.manifest import digest
from rlfactory.run.snapshot import Snapshot
from rlfactory.trainer import Trainer

log = logging.getLogger(__name__)


class Border:
    """The last point that a run can go on from, `state` in plain values; `exported` is the weight
    set that checkpoints have an export of.

    With a `snapshot` there is a way back to it while weights move.
    """

    def __init__(
        self, trainer: Trainer, keeper: Keeper, exported: str, snapshot: Snapshot | None
    ) -> None:
        self.trainer, self.keeper = trainer, keeper
        self.exported, self.snapshot = exported, snapshot
        self.state: Mapping[str, Any] = {"iterations": 0}

    def note(self, state: Mapping[str, Any]) -> None:
        """Weights are those of this state: between two iterations, so it can be gone on from."""
        self.state = state
        self.trainer.learner.has_moved = False

    @property
    def done(self) -> int:
        """Iterations that were done by then."""
        return int(self.state["iterations"])

    def hold(self) -> None:
        """Before weights move, have a way back to where they are; a checkpoint is one, and where
        nothing was learned there is none needed.
        """
        if self.snapshot is not None and self.done not in (0, self.keeper.saved):
            self.snapshot.take(self.done, self.trainer.parts.model, self.trainer.parts.optimizer)

    @property
    def is_near(self) -> bool:
        """Whether nothing is lost by leaving now."""
        held = None if self.snapshot is None else self.snapshot.iteration
        return not self.trainer.learner.has_moved or self.done in (0, held, self.keeper.saved)

    def save(self) -> None:
        """A checkpoint of it, unless there is one."""
        parts = self.trainer.parts
        about = {
            "step": self.done,
            "config": digest(self.state["config"]),
            "world_size": parts.hardware.world_size,
        }
        self.keeper.save(self.done, self.state, parts.model, self.exported, parts.optimizer, about)

    def keep(self) -> None:
        """Save it from within an iteration: what has moved since is put back."""
        if self.done in (0, self.keeper.saved):
            self.keeper.writer.wait()  # a beginning needs none
            return
        if self.trainer.learner.has_moved and self.snapshot is not None:
            self.snapshot.put_back(self.trainer.parts.model, self.trainer.parts.optimizer)
            self.trainer.learner.has_moved = False
        self.save()

    def rescue(self) -> None:
        """After an error, save it if there is a way back; what an error left half-way would be no
        iteration's.
        """
        if not self.is_near:
            return
        try:
            self.keep()
        except Exception:
            log.exception("what was learned since the last checkpoint could not be saved")
