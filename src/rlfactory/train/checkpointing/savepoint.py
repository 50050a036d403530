"""Savepoint: the last consistent training state, between two iterations.

Rolls back to it when a run stops in the middle of an iteration. The schedule saves at its times.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from rlfactory.hardware.base import Hardware
from rlfactory.run.checkpoint.checksums import digest
from rlfactory.run.checkpoint.snapshot import Snapshot
from rlfactory.run.environment import NUMERICS, numerics
from rlfactory.train.checkpointing.manager import CheckpointManager
from rlfactory.train.components import Metrics
from rlfactory.train.evaluation.evaluator import Evaluation
from rlfactory.train.listeners import Iteration, Listener, is_due
from rlfactory.train.trainer import Trainer

log = logging.getLogger(__name__)


class Savepoint:
    """The last state from which the run can be resumed exactly.

    Weights and optimizer state are not copied by `mark`: they are what they were until the learner
    moves them (`Learner.has_moved`). Before that, `take_snapshot` copies them to the CPU, unless
    the newest checkpoint has them already.

    Args:
        trainer: the loop whose state this is.
        manager: writes the checkpoints.
        read_state: returns the current non-tensor training state.
        snapshot: the copy to roll back to; None for none (`checkpoint.snapshot=false`).
    """

    def __init__(
        self,
        trainer: Trainer,
        manager: CheckpointManager,
        read_state: Callable[[], Mapping[str, Any]],
        snapshot: Snapshot | None,
    ) -> None:
        self.trainer, self.manager, self.read_state = trainer, manager, read_state
        self.snapshot = snapshot
        if snapshot is not None:
            trainer.learner.before_moving = snapshot.before_moving
        self.state: Mapping[str, Any] = {"iterations": 0}

    def mark(self) -> None:
        """Make the current state the savepoint; call it between iterations only."""
        self.state = self.read_state()
        self.trainer.learner.has_moved = False

    @property
    def done(self) -> int:
        """The number of iterations finished at the savepoint."""
        return int(self.state["iterations"])

    @property
    def _needs_no_copy(self) -> bool:
        """Whether the state is the initial one, or is in the newest checkpoint."""
        return self.done in (0, self.manager.saved)

    def take_snapshot(self) -> None:
        """Copy weights and optimizer state before they move, unless a checkpoint has them."""
        if self.snapshot is not None and not self._needs_no_copy:
            components = self.trainer.components
            self.snapshot.take(self.done, components.model, components.optimizer)

    @property
    def can_stop_now(self) -> bool:
        """Whether the savepoint is still at hand, so that stopping now loses no iteration."""
        if not self.trainer.learner.has_moved or self._needs_no_copy:
            return True
        return self.snapshot is not None and self.snapshot.iteration == self.done

    def save(self) -> None:
        """Write the savepoint as a checkpoint, unless it is one; weights must not have moved."""
        hardware, config = self.trainer.components.hardware, self.state["config"]
        about = {
            "step": self.done,
            "config": digest(config),
            "world_size": hardware.world_size,
            NUMERICS: numerics(hardware.device, config, hardware.world_size),
        }
        self.manager.save(self.done, self.state, about)

    def rollback_and_save(self) -> None:
        """Restore the savepoint from within an iteration, and write it as a checkpoint."""
        if self._needs_no_copy:
            self.manager.writer.wait()
            return
        if self.trainer.learner.has_moved and self.snapshot is not None:
            components = self.trainer.components
            self.snapshot.put_back(components.model, components.optimizer)
            self.trainer.learner.has_moved = False
        self.save()

    def save_after_error(self) -> None:
        """Roll back and save after an error, if possible; a second error is only logged."""
        if not self.can_stop_now:
            return  # weights have moved and there is no copy: half an iteration is never saved
        try:
            self.rollback_and_save()
        except Exception:
            log.exception("what was learned since the last checkpoint could not be saved")


class CheckpointSchedule(Listener):
    """Marks the savepoint after each iteration, and saves it as a checkpoint if one is due."""

    def __init__(self, options: Mapping[str, Any], savepoint: Savepoint, hardware: Hardware):
        self.every, self.keep_every = options["every"], options["keep_every"]
        self.seconds, self.keeps_best = 60 * options["minutes"], options["best"]
        self.savepoint, self.hardware = savepoint, hardware
        self.manager = savepoint.manager

    def is_due(self, done: int) -> bool:
        """Whether there is to be a checkpoint after so many iterations."""
        if is_due(done, self.every) or is_due(done, self.keep_every):
            return True
        if self.seconds <= 0:
            return False
        # the ranks' clocks differ, and saving is collective: one rank's clock decides for all
        return self.hardware.any_rank(time.monotonic() - self.manager.saved_at >= self.seconds)

    def after_iteration(self, iteration: Iteration) -> None:
        """Save a checkpoint if it is due; after the last iteration the run saves one anyway."""
        is_time = not iteration.is_last and self.is_due(iteration.done)
        if is_time:
            self.manager.scheduled.add(iteration.done)
        self.savepoint.mark()
        self.manager.writer.check()  # an error of the checkpoint before this one
        if is_time:
            self.savepoint.save()

    def after_evaluation(self, done: int, evaluation: Evaluation, metrics: Metrics) -> None:
        """Save a checkpoint of the weights with the best score so far."""
        del metrics
        best = self.manager.best
        if self.keeps_best and done and best.beaten_by(evaluation.scores):
            best.take(done, evaluation.scores)
            self.savepoint.mark()
            self.savepoint.save()
