"""Checkpoints while a run goes on: when they are due, what they are of, and what writes them.

The savepoint is the last consistent training state, between two iterations; a run that stops in the
middle of one rolls back to it.
"""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from rlfactory.hardware.base import Hardware
from rlfactory.model.base import Model
from rlfactory.run.atomic_write import flush
from rlfactory.run.checkpoint.checksums import digest
from rlfactory.run.checkpoint.find import Best, Retention, checkpoint_of
from rlfactory.run.checkpoint.save import begin_checkpoint, begin_part, checkpoint_bytes
from rlfactory.run.checkpoint.snapshot import Snapshot
from rlfactory.run.disk_errors import explain_disk_errors
from rlfactory.run.environment import NUMERICS, numerics
from rlfactory.run.folder import RunFolder, enough_space
from rlfactory.train.components import Metrics
from rlfactory.train.evaluation.evaluator import Evaluation
from rlfactory.train.listeners import Iteration, Listener, is_due
from rlfactory.train.trainer import Trainer

log = logging.getLogger(__name__)


class BackgroundWriter:
    """Runs jobs in the order in which they are given: in a thread with `background`, else at once.

    A new job waits for the one before. An error of a job is raised by the next call of any method.
    """

    def __init__(self, *, background: bool = True) -> None:
        self._pool = ThreadPoolExecutor(1, "checkpoint") if background else None
        self._last: Future[None] | None = None

    def do(self, job: Callable[[], None]) -> None:
        """Start a job, once the one before is done."""
        self.wait()
        if self._pool is None:
            job()
        else:
            self._last = self._pool.submit(job)

    def check(self) -> None:
        """Raise the error of a job that has ended with one; does not wait."""
        if self._last is not None and self._last.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the last job is done; raise its error."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Wait as `wait` does, then end the thread."""
        try:
            self.wait()
        finally:
            if self._pool is not None:
                self._pool.shutdown()


class CheckpointManager:
    """Writes checkpoints, and removes those that do not stay (`checkpoint.keep`, `keep_every`).

    Ranks other than 0 write their shards, if the model is sharded, beside those of rank 0, and
    nothing else.

    Attributes:
        saved: the iteration of the newest checkpoint, None before the first.
        saved_at: when it was made, by `time.monotonic()`.
        scheduled: the iterations whose checkpoint was due; `checkpoint.keep` counts these alone.
        best: the iteration with the best evaluation, whose checkpoint always stays.
    """

    def __init__(
        self,
        folder: RunFolder,
        options: Mapping[str, Any],
        best: Best,
        *,
        model: Model,
        optimizer: Optimizer,
        exported: str,
        is_main: bool = True,
    ) -> None:
        """`options` are those of `checkpoint`; of the weight set `exported` checkpoints hold an
        export.
        """
        self.folder, self.best, self.is_main = folder, best, is_main
        self.model, self.optimizer, self.exported = model, optimizer, exported
        self.retention = Retention(options["keep"], options["keep_every"])
        self.writer = BackgroundWriter(background=options["background"])
        self.saved: int | None = None
        self.saved_at = time.monotonic()
        self.scheduled: set[int] = set()

    def save(self, done: int, state: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Write a checkpoint of this iteration, unless it has one, and the name of the best one.

        Weights and the optimizer's state are copied before this returns, so training may continue.
        `about` are entries of the manifest.

        Raises:
            DiskError: now, or from the next call of `writer` if it happens in the background.
        """
        self.writer.wait()  # so that there is one copy of the weights at a time
        write: Callable[[], None] | None = None
        if self.saved != done:
            folder = checkpoint_of(self.folder.checkpoints, done)
            if self.is_main:
                write = self._begin(folder, state, about)
            else:
                write = begin_part(folder, self.model, self.optimizer)
            self.saved, self.saved_at = done, time.monotonic()
        if self.is_main:
            self.writer.do(partial(self._finish, write, frozenset(self.scheduled), self.best.step))
        elif write is not None:
            self.writer.do(write)

    def require_room(self, what: str = "a checkpoint") -> int:
        """DiskError unless the disk has room for a checkpoint; returns the bytes that it takes,
        before the first update without those of the optimizer's state.
        """
        needed = checkpoint_bytes(self.model, self.optimizer)
        with explain_disk_errors(self.folder.path, what, needed):
            enough_space(self.folder.path, needed)
        return needed

    def _begin(
        self, folder: Path, state: Mapping[str, Any], about: Mapping[str, Any]
    ) -> Callable[[], None]:
        """Copy what the checkpoint holds; returns the function that writes it."""
        needed = self.require_room(what := f"checkpoint {folder.name}")
        explained = partial(explain_disk_errors, self.folder.path, what, needed)
        with explained():
            # the state counts lines of metrics: they must be on the disk before the checkpoint is
            if self.folder.metrics.exists():
                flush(self.folder.metrics)
            finish = begin_checkpoint(
                folder, self.model, self.exported, state, self.optimizer, about
            )

        def write() -> None:
            with explained():
                finish()

        return write

    def _finish(
        self, write: Callable[[], None] | None, scheduled: frozenset[int], best: int | None
    ) -> None:
        """The part of saving that may run in the background."""
        if write is not None:
            try:
                write()
            except BaseException:
                self.saved = None  # so that it can be saved again
                raise
        with explain_disk_errors(self.folder.path, "the best checkpoint's name"):
            self.best.write()
        with explain_disk_errors(self.folder.path, "the removal of old checkpoints"):
            self.retention.clear(self.folder.checkpoints, scheduled, best)


class Savepoint:
    """The last state from which the run can be resumed exactly.

    Weights and optimizer state are not copied by `mark`: they are what they were until the learner
    moves them (`Learner.has_moved`). Before that, `take_snapshot` copies them to the CPU, unless
    the newest checkpoint has them already.

    Args:
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
        best = self.manager.best
        if self.keeps_best and done and best.beaten_by(evaluation.scores):
            best.take(done, evaluation.scores)
            self.savepoint.mark()
            self.savepoint.save()
