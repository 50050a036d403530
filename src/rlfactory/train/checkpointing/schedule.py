"""Decides when a checkpoint is due: every N iterations, every N minutes, at a new best score."""

import time
from collections.abc import Mapping
from typing import Any

from rlfactory.hardware.base import Hardware
from rlfactory.train.checkpointing.manager import CheckpointManager
from rlfactory.train.checkpointing.savepoint import Savepoint
from rlfactory.train.components import Metrics
from rlfactory.train.evaluation.evaluator import Evaluation
from rlfactory.train.listeners import Iteration, Listener, is_due


class CheckpointSchedule(Listener):
    """Marks the savepoint after each iteration, and saves it as a checkpoint if one is due."""

    def __init__(self, options: Mapping[str, Any], savepoint: Savepoint, hardware: Hardware):
        self.every, self.keep_every = options["every"], options["keep_every"]
        self.seconds, self.keeps_best = 60 * options["minutes"], options["best"]
        self.savepoint, self.hardware = savepoint, hardware

    @property
    def manager(self) -> CheckpointManager:
        """The writer of checkpoints."""
        return self.savepoint.manager

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
