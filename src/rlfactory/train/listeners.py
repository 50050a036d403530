"""Listeners (callbacks): what happens in a run after each iteration and each evaluation.

A run has one list of listeners and calls them in its order:

1. the evaluation reporter writes scores, sample grids and the final report (rank 0 only);
2. `MetricsRecorder` appends to metrics.jsonl and to the loggers;
3. `ProgressDisplay` shows the iteration on the terminal;
4. `HealthMonitor` warns about suspicious metrics;
5. `CheckpointSchedule` saves a checkpoint if one is due;
6. `EvaluationSchedule` evaluates or previews the weights if that is due;
7. listeners of the user, in the order given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlfactory.rollout import GeneratedSamples, Rollout
from rlfactory.run.disk_errors import explain_disk_errors
from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers import Logger
from rlfactory.run.metrics import MetricsLog
from rlfactory.run.progress import Progress
from rlfactory.run.scores import Scores
from rlfactory.train.components import Components, Metrics
from rlfactory.train.evaluation.evaluator import Evaluation
from rlfactory.utils.fault_injection import fault_point

Outcome = Literal["done", "paused", "interrupted", "preempted"]
"""How a run ended: with its last iteration, at `until`, by Ctrl-C, or by another signal."""


@dataclass(frozen=True)
class Iteration:
    """A finished iteration.

    Attributes:
        done: the number of iterations finished so far in this run, this one included.
        metrics: its metrics by name, as they stand in metrics.jsonl.
        rollout: this rank's samples with their rewards and advantages.
        is_last: whether no iteration follows.
    """

    done: int
    metrics: Metrics
    rollout: Rollout
    is_last: bool


@dataclass(frozen=True)
class Summary:
    """The result of a run that ended without an error.

    Attributes:
        outcome: how it ended.
        done: the number of iterations finished.
        initial_scores: the evaluation scores before training.
        final_scores: those after the last iteration; None where iterations are left.
        advice: the warnings of the health monitor.
    """

    outcome: Outcome
    done: int
    initial_scores: Scores
    final_scores: Scores | None
    advice: Sequence[str]


class Listener:
    """Base class of listeners: override the hooks that you need, the others do nothing.

    Hooks are called on every rank, so a hook may use collectives, and one that prints or writes
    should do so only where `components.hardware.rank == 0`. An exception ends the run like any
    other error. A run that is killed and resumed repeats the iterations after its checkpoint, and
    calls the hooks for them again.

    Example::

        class PrintTime(Listener):
            def after_iteration(self, iteration: Iteration) -> None:
                print(iteration.done, iteration.metrics["time/iteration"])

        Session(config, folder, listeners=[PrintTime()]).run()
    """

    def before_training(self, components: Components, done: int) -> None:
        """Called once, with the model loaded and after the initial evaluation.

        Args:
            components: the live objects of the run: model, reward, optimizer, hardware and so on.
            done: the number of iterations that earlier processes of this run finished.
        """

    def after_iteration(self, iteration: Iteration) -> None:
        """Called after each iteration; the weights are those that it ended with."""

    def after_evaluation(self, done: int, evaluation: Evaluation, metrics: Metrics) -> None:
        """Called after each evaluation, also the initial (`done` is 0) and the final one.

        Args:
            done: the number of iterations finished.
            evaluation: evaluation scores of all ranks, and the samples that got them.
            metrics: the means of these scores, `eval/...`.
        """

    def after_preview(self, done: int, samples: GeneratedSamples) -> None:
        """Called after samples of the first evaluation prompts were drawn, without scoring them."""

    def after_training(self, summary: Summary) -> None:
        """Called once at the end, also of a run that was stopped, but not after an error."""


def as_listener(given: Any) -> Listener:
    """A listener as it is; a function as one that calls it after each iteration."""
    if hasattr(given, "after_iteration"):
        return given
    listener = Listener()
    listener.after_iteration = given  # type: ignore[method-assign]
    return listener


class MetricsRecorder(Listener):
    """Appends metrics to metrics.jsonl and hands them to the loggers."""

    def __init__(self, metrics: MetricsLog, logger: Logger, folder: RunFolder) -> None:
        self.metrics, self.logger, self.folder = metrics, logger, folder

    def after_iteration(self, iteration: Iteration) -> None:
        self._record(iteration.done, iteration.metrics)
        fault_point("after_iteration")

    def after_evaluation(self, done: int, evaluation: Evaluation, metrics: Metrics) -> None:
        self._record(done, metrics)

    def after_training(self, summary: Summary) -> None:
        self.logger.finish()

    def _record(self, done: int, metrics: Metrics) -> None:
        with explain_disk_errors(self.folder.path, "a line of metrics"):
            self.metrics.log(done, metrics)


class ProgressDisplay(Listener):
    """Shows each iteration on the terminal."""

    def __init__(self, progress: Progress, reward_name: str) -> None:
        self.progress, self.reward_name = progress, reward_name
        self.evaluated: Metrics = {}

    def after_iteration(self, iteration: Iteration) -> None:
        metrics = self.evaluated | iteration.metrics
        self.progress.iteration(iteration.done - 1, metrics, self.reward_name)

    def after_evaluation(self, done: int, evaluation: Evaluation, metrics: Metrics) -> None:
        """Keep what is shown of the latest evaluation."""
        self.evaluated = metrics


def is_due(done: int, every: int) -> bool:
    """Whether something that happens every so many iterations is due; 0 is never."""
    return every > 0 and done % every == 0
