"""Writes the checkpoints of a run, in the background if wanted, and removes old ones."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from rlfactory.model.base import ImageModel
from rlfactory.model.text_base import TextModel
from rlfactory.run.atomic_write import flush
from rlfactory.run.checkpoint.find import Best, Retention, checkpoint_of
from rlfactory.run.checkpoint.save import begin_checkpoint, begin_part, checkpoint_bytes
from rlfactory.run.disk_errors import explain_disk_errors
from rlfactory.run.folder import RunFolder, enough_space


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
        model: ImageModel | TextModel,
        optimizer: Optimizer,
        exported: str,
        is_main: bool = True,
    ) -> None:
        """
        Args:
            options: those of `checkpoint`.
            model: its weight sets are saved, with the optimizer's state.
            exported: the weight set of which checkpoints hold an export.
            is_main: whether this is rank 0.
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

        Args:
            done: the number of iterations finished.
            state: the non-tensor training state.
            about: entries of the manifest.

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

    def write_best(self) -> None:
        """Name the best checkpoint in best.json."""
        if self.is_main:
            self.best.write()

    def _begin(
        self, folder: Path, state: Mapping[str, Any], about: Mapping[str, Any]
    ) -> Callable[[], None]:
        """Copy what the checkpoint holds; returns the function that writes it."""
        needed = checkpoint_bytes(self.model, self.optimizer)
        explained = partial(explain_disk_errors, self.folder.path, f"checkpoint {folder.name}")
        with explained(needed):
            enough_space(self.folder.path, needed)
            # the state counts lines of metrics: they must be on the disk before the checkpoint is
            if self.folder.metrics.exists():
                flush(self.folder.metrics)
            finish = begin_checkpoint(
                folder, self.model, self.exported, state, self.optimizer, about
            )

        def write() -> None:
            with explained(needed):
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
