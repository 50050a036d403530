"""One training run, from its first evaluation to its last picture, in one sitting or several."""

import io
import logging
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rlfactory.beginning import agreeing, beginning, rewound
from rlfactory.border import Border
from rlfactory.build import Config, budget, build, hardware_of, make
from rlfactory.fault import fault
from rlfactory.hardware.base import Hardware
from rlfactory.interruption import Interruptible
from rlfactory.keeping import Keeper
from rlfactory.learner import nothing
from rlfactory.model.base import ImageModel
from rlfactory.parts import Metrics
from rlfactory.rollout import Rollout
from rlfactory.run.advice import Adviser
from rlfactory.run.begin import begin_with
from rlfactory.run.best import Best
from rlfactory.run.checkpoint import load_checkpoint, load_optimizer
from rlfactory.run.disk import DiskError, Patience
from rlfactory.run.evidence import Evidence
from rlfactory.run.folder import RunFolder
from rlfactory.run.guards import Guard
from rlfactory.run.loggers import NoLogger
from rlfactory.run.loggers.guarded import guarded
from rlfactory.run.manifest import read_manifest, versions
from rlfactory.run.metrics import MetricsLog, read
from rlfactory.run.progress import Progress
from rlfactory.run.scores import Scores
from rlfactory.run.signals import Interruption, Stop
from rlfactory.run.snapshot import Snapshot
from rlfactory.scoring import TrainingError
from rlfactory.showing import Showing
from rlfactory.state import state_of, take_up
from rlfactory.trainer import Trainer

log = logging.getLogger(__name__)

Outcome = Literal["done", "paused", "interrupted", "preempted"]


class Session:
    """The loop with what surrounds it: evaluations, checkpoints, pictures, the log of metrics.

    Where the folder has a checkpoint it goes on from there, as if it had never stopped; `force`
    says that the configuration may be another one by now. `until` is an iteration to stop after.
    Of several processes, which bring their `hardware`, all have a session and one leads: the others
    compute, decide the same, and write and show nothing.
    """

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        until: int | None = None,
        force: bool = False,
        stop: Stop | None = None,
        hardware: Hardware | None = None,
    ) -> None:
        self.folder, self.config, self.until = folder, config, until
        self.stop = stop or Stop()
        self.hardware = hardware or hardware_of(config)
        self.leads = self.hardware.rank == 0
        stream = sys.stdout if self.leads else io.StringIO()
        self.progress = Progress(config["iterations"], stream=stream)
        begin = beginning(folder, self.hardware, self.progress.say)
        state = {} if begin is None else agreeing(begin, config, force)
        alone = self.hardware.world_size == 1
        watcher = Interruptible(self.progress, self._leave if alone else nothing)
        self.parts = build(config, watcher.advance, self.hardware)
        guard = Guard(**config["guard"], witness=Evidence(folder.evidence))
        self.trainer = Trainer(self.parts, budget(config), watcher, guard=guard)
        self.trainer.meet = nothing if alone else self._meet
        logger = make(config, "logger") if self.leads else NoLogger()
        self.logger = guarded(logger, self.progress.say)
        self.main = self.parts.reward.main
        self.best = Best(folder.checkpoints, self.main, config["stop"]["kl"])
        options = config["checkpoint"]
        self.keeps_best: bool = options["best"]
        seconds = 60 * options["patience"] if options["on_error"] == "wait" else 0
        self.patience = Patience(
            folder.path, seconds, self.progress.say, lambda: bool(self.stop.asked)
        )
        self.showing = Showing(config, folder, self.parts, watcher, self.patience)
        self.keeper = Keeper(folder, options, self.best, self.patience, leads=self.leads)
        snapshot = Snapshot() if options["snapshot"] else None
        self.border = Border(self.trainer, self.keeper, self.showing.weights, snapshot)
        self.done = 0
        self.looked = -1  # the last iteration whose weights were looked at as is its turn
        self.before: Scores | None = None
        self.after: Scores | None = None
        there = rewound(folder, self.hardware, state)
        if begin is not None:
            self._go_on(begin, state, there)
        elif config.get("begin_from") is not None:
            begin_with(Path(config["begin_from"]), self.parts.model)
        if self.leads:
            self.best.write()
        self.logger.start(folder.path, config)
        self.metrics = MetricsLog(folder.metrics if self.leads else None, [self.logger])
        past = read(folder.metrics) if self.leads and folder.metrics.exists() else []
        self.adviser = Adviser(self.main, past, state.get("advice", {}))
        self._note()

    def _go_on(self, begin: Path, state: Mapping[str, Any], lines: int) -> None:
        """Take up everything as a checkpoint has it."""
        load_checkpoint(begin, self.parts.model)
        keep, model = self._has_other_optimizer(state), self.parts.model
        load_optimizer(begin, self.parts.optimizer, keep, model)
        take_up(self.trainer, state)
        self.best.load_state_dict(state["best"])
        self.logger.go_on(state["logger"], state["iterations"])
        self.done = self.keeper.saved = state["iterations"]
        self.looked, self.keeper.timely = state["looked"], set(state["timely"])
        self.progress.begin(self.done)
        said = f"going on after iteration {self.done} of {self.config['iterations']}, from {begin}"
        log.info(said)
        self.progress.say(said)
        if lines < state["lines"]:
            log.warning("%s lacks %d lines", self.folder.metrics, state["lines"] - lines)
        if (made := read_manifest(begin)["versions"]) != versions():
            log.warning("%s was made with %s, not %s", begin.name, made, versions())

    def _has_other_optimizer(self, state: Mapping[str, Any]) -> bool:
        return bool(state["config"]["optimizer"] != self.config["optimizer"])

    def run(self) -> Outcome:
        """Train between two evaluations. Whatever happens, what there is by then is kept."""
        with self.progress:
            if isinstance(self.parts.model, ImageModel):
                self.parts.model.prepare()
            with self.stop.wished():
                try:
                    self._train()
                except Interruption:
                    self.border.keep()
                except DiskError:
                    raise
                except Exception as error:
                    if self._is_everyones(error):
                        self.border.rescue()
                    if not self.stop.asked:
                        raise
                    # parts of a run may have been stopped first, as the process of a reward is by
                    # a signal that goes to all
                    log.warning("an error after the run was asked to stop", exc_info=error)
                finally:
                    self.keeper.writer.close()
        outcome: Outcome = (
            "done" if self.after else self.stop.status if self.stop.asked else "paused"
        )
        if self.leads and outcome in ("interrupted", "preempted"):
            # what follows takes seconds, and whoever stops a machine may not wait for them
            self.folder.set_status(self.stop.status)
        if self.before is not None and self.leads:
            self.showing.conclude(self.before, self.after, [*self.adviser.given.values()])
            self.logger.finish()
        return outcome

    def _is_everyones(self, error: Exception) -> bool:
        """Whether what is saved now is at hand: of a divided network all processes hand over their
        part, and have met the same error if it came from what they all know.
        """
        return self.parts.model.weights.division is None or isinstance(error, TrainingError)

    def _train(self) -> None:
        self.before = self.evaluate() if self.looked < 0 else self.showing.first()
        self.look()
        self.trainer.run(self.after_iteration, self.done, self._is_to_stop, self._hold)
        if self.done:
            self.border.save()
        self.after = self.evaluate() if self._is_finished else None

    def _hold(self) -> None:
        self._agree()
        self.stop.leave()
        self.border.hold()

    def _leave(self) -> None:
        """Interruption if it was asked for, unless the iteration is to be ended first."""
        if self.border.is_near:
            self.stop.leave()

    @property
    def _is_finished(self) -> bool:
        return self.trainer.ended is not None or self.done == self.trainer.budget.iterations

    def _meet(self) -> None:
        """All processes leave at the same point, whichever of them was asked to."""
        self._agree()
        self._leave()

    def _agree(self) -> None:
        self.stop.asked = int(self.hardware.largest(self.stop.asked))

    def _is_to_stop(self) -> bool:
        self._agree()
        return bool(self.stop.asked) or (self.until is not None and self.done >= self.until)

    def after_iteration(self, iteration: int, metrics: Metrics, rollout: Rollout) -> None:
        """Log an iteration, and do what its number asks for."""
        del rollout
        self.done = iteration + 1
        self._log(metrics)
        fault("after_iteration")
        self.progress.iteration(iteration, metrics, self.main)
        self.adviser.hear(self.done, metrics, self.progress.say)
        is_time = not self._is_finished and self.keeper.is_time(self.done, self.hardware.any)
        self._note()
        self.keeper.writer.check()
        if is_time:
            self.border.save()
        self.look()

    def look(self) -> None:
        """Evaluate or preview the weights if it is their turn and was not done."""
        if self.looked == self.done or self._is_finished:
            return
        if self.showing.is_due(self.done):
            self.evaluate()
        else:
            self.showing.preview(self.done)
        self.looked = self.done
        self._note()

    def evaluate(self) -> Scores:
        """Scores of the weights as they are now, which are kept where they are the best so far."""
        scores, metrics = self.showing.evaluate(self.done, self.logger)
        self._log(metrics)
        self.looked = self.done
        if self.keeps_best and self.done and self.best.beaten_by(scores):
            self.best.take(self.done, scores)
            self._note()
            self.border.save()
        self._note()
        return scores

    def _log(self, metrics: Metrics) -> None:
        self.patience.over(partial(self.metrics.log, self.done, metrics), "a line of metrics")

    def _note(self) -> None:
        self.border.note(self._state())

    def _state(self) -> dict[str, Any]:
        """What a later sitting needs beside tensors."""
        return {
            "iterations": self.done,
            "looked": self.looked,
            "lines": self.metrics.lines,
            "timely": sorted(self.keeper.timely),
            "best": self.best.state_dict(),
            "logger": self.logger.state_dict(),
            "advice": self.adviser.state_dict(),
            **state_of(self.trainer),
            "config": dict(self.config),
        }
