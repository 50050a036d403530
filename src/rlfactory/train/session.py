"""A training session: one process working on a run, from its newest checkpoint to a stop or end."""

import io
import logging
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rlfactory.hardware.base import Hardware
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.run.checkpoint.find import Best
from rlfactory.run.checkpoint.load import explained_state, load_initial_weights
from rlfactory.run.checkpoint.snapshot import AUTO_LIMIT, Snapshot, snapshot_bytes
from rlfactory.run.disk_errors import DiskError
from rlfactory.run.folder import RunFolder
from rlfactory.run.inputs import with_inputs
from rlfactory.run.metrics import MetricsLog, read
from rlfactory.run.progress import Progress
from rlfactory.run.scores import Scores
from rlfactory.train.build import (
    build,
    build_hardware,
    build_logger,
    learned_prompts,
    training_budget,
)
from rlfactory.train.checkpointing.resume_point import (
    ResumePoint,
    find_resume_point,
    rewind_run_folder,
)
from rlfactory.train.checkpointing.savepoint import CheckpointManager, CheckpointSchedule, Savepoint
from rlfactory.train.components import Metrics, ProgressListener
from rlfactory.train.evaluation.build import build_evaluator
from rlfactory.train.evaluation.evaluation_schedule import EvaluationReporter, EvaluationSchedule
from rlfactory.train.guards.failure_dump import write_dump
from rlfactory.train.guards.update_guard import Guard
from rlfactory.train.health import HealthMonitor
from rlfactory.train.listeners import (
    Iteration,
    Listener,
    MetricsRecorder,
    Outcome,
    ProgressDisplay,
    Summary,
    as_listener,
)
from rlfactory.train.process.ranks import is_peer_lost
from rlfactory.train.process.signals import Interruption, Stop, StopAwareProgress
from rlfactory.train.trainer import Trainer
from rlfactory.utils.dotted_keys import Config
from rlfactory.utils.errors import TrainingError

log = logging.getLogger(__name__)

ENDS = ("iterations", "max_minutes", "stop")
"""Keys that end a run; one that had ended goes on where they are changed."""


class Session:
    """Assembles a run from its frozen configuration, resumes it, and trains.

    Where the folder holds a checkpoint the run resumes from it and ends as if it had never stopped:
    bit for bit on a CPU, and on a GPU with `hardware.deterministic`. Every rank has a session and
    decides the same; only rank 0 writes and shows.

    Args:
        until: an iteration to pause after.
        force: resume even if another configuration made the checkpoint.
        hardware: that of this process, where it was made already.
        listeners: called after the run's own, in this order.
    """

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        until: int | None = None,
        force: bool = False,
        stop: Stop | None = None,
        hardware: Hardware | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.config, self.folder, self.until = config, folder, until
        self.stop = stop or Stop()
        self.hardware = hardware or build_hardware(config)
        self.is_main_process = self.hardware.rank == 0
        self.done = 0
        stream = sys.stdout if self.is_main_process else io.StringIO()
        self.progress = Progress(config["iterations"], stream=stream)
        resume = find_resume_point(
            folder, self.hardware, config, force=force, say=self.progress.say
        )
        self._build_training()
        self._build_schedules()
        self.logger = build_logger(config, self.hardware, self.progress.say)
        lines = rewind_run_folder(folder, self.hardware, resume)
        if resume is not None:
            self._restore(resume, lines)
        elif config.get("begin_from") is not None and config["begin_as"] == "continued":
            load_initial_weights(
                Path(config["begin_from"]), self.components.model, config["reference_from"]
            )
        if self.is_main_process:
            self.manager.best.write()
        self._build_listeners(resume, listeners)
        self.savepoint.mark()

    def _build_training(self) -> None:
        """The components, and the loop over them."""
        is_alone = self.hardware.world_size == 1
        # several ranks must leave at the same point, so they stop in `_sync_stop` alone
        progress: ProgressListener = self.progress
        if is_alone:
            progress = StopAwareProgress(progress, self._raise_if_stopped)
        located = with_inputs(self.config, self.folder)
        self.components = build(located, progress.advance, self.hardware)
        self.components.sampler.check_rows(learned_prompts(self.config, self.components.prompts))
        self.trainer = Trainer(
            self.components,
            training_budget(self.config),
            progress,
            guard=Guard(**self.config["guard"], recorder=partial(write_dump, self.folder.evidence)),
            sync=None if is_alone else self._sync_stop,
        )
        self.evaluator = build_evaluator(self.config, self.components, progress)

    def _build_schedules(self) -> None:
        """Build the schedules that decide when to save and when to evaluate."""
        options, evaluation = self.config["checkpoint"], self.config["evaluation"]
        main = self.evaluator.main
        best = Best(self.folder.checkpoints, main, self.config["stop"]["kl"])
        self.manager = CheckpointManager(
            self.folder,
            options,
            best,
            model=self.components.model,
            optimizer=self.components.optimizer,
            exported=evaluation["weights"],
            is_main=self.is_main_process,
        )
        self.savepoint = Savepoint(
            self.trainer, self.manager, self._state, self._snapshot(options["snapshot"])
        )
        self.listeners: list[Listener] = []
        self.checkpointing = CheckpointSchedule(options, self.savepoint, self.hardware)
        self.evaluation = EvaluationSchedule(
            evaluation, self.evaluator, self.savepoint, self.folder, self.listeners
        )

    def _snapshot(self, option: bool | str) -> Snapshot | None:
        """The copy to roll back to; None for none. All ranks decide the same."""
        model = self.components.model
        if option == "auto":
            option = not self.hardware.any_rank(snapshot_bytes(model) > AUTO_LIMIT)
        if not option:
            return None
        # where all ranks have equal weights, rank 0 alone restores and saves them
        return Snapshot(copies=self.is_main_process or model.weights.sharding is not None)

    def _build_listeners(self, resume: ResumePoint | None, users: Sequence[Listener]) -> None:
        """Fill the list of listeners, once the run folder is as it was at the checkpoint."""
        folder = self.folder
        # the scores of data say nothing about what is learned from them
        trains = self.components.algo.samples_from == "policy"
        main = self.components.reward.main if trains else ""
        if resume is None:  # the folder may have a beginning that was killed before a checkpoint
            self.logger.restart(folder.path)
        self.logger.start(folder.path, self.config)
        path = folder.metrics if self.is_main_process else None
        self.metrics = MetricsLog(path, [self.logger])
        past = read(path) if path is not None and path.exists() else []
        given = {} if resume is None else resume.state.get("advice", {})
        self.health = HealthMonitor(main, past, given, self.progress.say)
        if self.is_main_process:
            count = self.config["evaluation"]["grid"]
            reporter = EvaluationReporter(folder, self.evaluator, self.logger, count=count)
            self.listeners.append(reporter)
        self.listeners += [
            MetricsRecorder(self.metrics, self.logger, folder),
            ProgressDisplay(self.progress, self.components.reward.main),
            self.health,
            self.checkpointing,
            self.evaluation,
            *map(as_listener, users),
        ]

    def _restore(self, resume: ResumePoint, lines: int) -> None:
        """Restore everything from a checkpoint; `lines` of metrics are left in the folder."""
        state = resume.state
        resume.load_tensors(self.components.model, self.components.optimizer, self.config)
        with explained_state(resume.checkpoint):
            self.trainer.load_state_dict(state)
            self.manager.best.load_state_dict(state["best"])
        if any(state["config"].get(key) != self.config.get(key) for key in ENDS):
            self.trainer.ended = None
        self.logger.resume(state["logger"], state["iterations"])
        self.done = self.manager.saved = state["iterations"]
        self.manager.scheduled = set(state["timely"])
        self.evaluation.last_evaluated = state["looked"]
        self.progress.begin(self.done)
        where = f"iteration {self.done} of {self.config['iterations']}, from {resume.checkpoint}"
        log.info("resuming after %s", where)
        self.progress.say(f"resuming after {where}")
        if self.is_main_process:
            resume.warn_of_changes(self.hardware, self.config, self.progress.say)
        if lines < state["lines"]:
            log.warning("%s lacks %d lines", self.folder.metrics, state["lines"] - lines)

    def _state(self) -> dict[str, Any]:
        """The non-tensor training state, as plain values: what a checkpoint's state.json holds."""
        return {
            "iterations": self.done,
            "looked": self.evaluation.last_evaluated,
            "lines": self.metrics.lines,
            "timely": sorted(self.manager.scheduled),
            "best": self.manager.best.state_dict(),
            "logger": self.logger.state_dict(),
            "advice": self.health.state_dict(),
            **self.trainer.state_dict(),
            "config": dict(self.config),
        }

    def run(self) -> Outcome:
        """Train until the run ends, pauses or is stopped.

        Whatever ends it, a checkpoint of the last finished iteration is written if possible.

        Raises:
            DiskError: a file could not be written; the last good checkpoint stays.
            TrainingError: training cannot continue.
            Exception: any other error of the components, after saving.
        """
        initial = final = None
        with self.progress:
            if isinstance(self.components.model, ImageModel):
                self.components.model.prepare()
            self.components.algo.prepare(self.components.model)
            with self.stop.wished():
                try:
                    if self.is_main_process:
                        self.manager.require_room()
                    initial = self.evaluation.initial_scores()
                    final = self._train()
                except Interruption:
                    self.savepoint.rollback_and_save()
                except DiskError:
                    raise
                except Exception as error:
                    self._handle_error(error)
                finally:
                    self.manager.writer.close()
        stopped = self.stop.status if self.stop.is_requested else "paused"
        outcome: Outcome = "done" if final else stopped
        if self.is_main_process and outcome in ("interrupted", "preempted"):
            # before the final report, which takes seconds: the machine may be lost by then
            self.folder.set_status(self.stop.status)
        if initial is not None:
            advice = [*self.health.given.values()]
            summary = Summary(outcome, self.done, initial, final, advice)
            for listener in self.listeners:
                listener.after_training(summary)
        return outcome

    def _train(self) -> Scores | None:
        """All iterations that are left; the final scores if the run is finished."""
        for listener in self.listeners:
            listener.before_training(self.components, self.done)
        if not self._is_finished:
            self.evaluation.evaluate_if_due(self.done)
        self.trainer.run(self._after_iteration, self.done, self._should_stop, self._before_learning)
        if self.done:
            self.savepoint.save()
        return self.evaluation.evaluate(self.done) if self._is_finished else None

    def _after_iteration(self, iteration: int, metrics: Metrics, rollout: Rollout) -> None:
        self.done = iteration + 1
        finished = Iteration(self.done, metrics, rollout, self._is_finished)
        for listener in self.listeners:
            listener.after_iteration(finished)

    @property
    def _is_finished(self) -> bool:
        return self.trainer.ended is not None or self.done == self.trainer.budget.iterations

    def _before_learning(self) -> None:
        """The last moment before weights move: stop here, or make sure of a way back."""
        self._all_reduce_stop()
        self.stop.leave()
        self.savepoint.take_snapshot()

    def _handle_error(self, error: Exception) -> None:
        """Save what there is, and raise the error again, unless a stop caused it."""
        # Saving sharded weights is a collective: it works only if all ranks have this error, as
        # they do where it follows from what all of them know.
        is_sharded = self.components.model.weights.sharding is not None
        if not is_sharded or isinstance(error, TrainingError):
            self.savepoint.save_after_error()
        # torchrun asks the ranks that are left to stop when one is lost: that is no wish to stop
        if not self.stop.is_requested or is_peer_lost(error):
            raise error
        # a signal to all processes of a job may end that of a reward first, which then fails here
        log.warning("an error after the run was asked to stop", exc_info=error)

    def _raise_if_stopped(self) -> None:
        """Raise Interruption if a stop was requested, unless this iteration must be finished."""
        if self.savepoint.can_stop_now:
            self.stop.leave()

    def _sync_stop(self) -> None:
        """Stop all ranks at the same point, whichever of them was asked to."""
        self._all_reduce_stop()
        self._raise_if_stopped()

    def _all_reduce_stop(self) -> None:
        # schedulers may signal one process of a job only
        if self.hardware.world_size > 1:
            self.stop.agree(self.hardware.all_reduce_max)

    def _should_stop(self) -> bool:
        self._all_reduce_stop()
        return bool(self.stop.asked) or (self.until is not None and self.done >= self.until)
