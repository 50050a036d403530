"""The loop: sample, score, compare, learn."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from rlfactory.dealing import gathered, own_rows, picture_metrics, with_whole
from rlfactory.fault import fault
from rlfactory.learner import Learner, nothing
from rlfactory.model.evaluations import Evaluations, evaluation_metrics
from rlfactory.nest import join, present
from rlfactory.parts import Budget, Metrics, Parts, Watcher
from rlfactory.regularizer.base import KL
from rlfactory.reward.base import Samples, judge
from rlfactory.rollout import Rollout, Whole
from rlfactory.run.guards import Guard
from rlfactory.scoring import reward_metrics, samples_of, scored, zero_groups

log = logging.getLogger(__name__)


@dataclass
class Trainer:
    """Runs the loop over its parts.

    `evaluations` counts those of the network, `seconds` the time of earlier sittings; `ended` says
    why no iteration follows, where there are some left. `meet` is called where all processes are
    at the same point; it may raise, in all of them.
    """

    parts: Parts
    budget: Budget
    watcher: Watcher
    evaluations: int = 0
    seconds: float = 0.0
    ended: str | None = None
    guard: Guard = field(default_factory=Guard)
    meet: Callable[[], None] = nothing
    learner: Learner = field(init=False)
    _seconds: dict[str, float] = field(default_factory=dict)
    _started: float | None = None

    def __post_init__(self) -> None:
        self.learner = Learner(self.parts, self.budget, self.watcher, self.guard)
        self.learner.meet = self._meet

    def _meet(self) -> None:
        self.meet()

    def run(
        self,
        after_iteration: Callable[[int, Metrics, Rollout], None],
        begin: int = 0,
        is_asked_to_stop: Callable[[], bool] = lambda: False,
        before_learning: Callable[[], None] = lambda: None,
    ) -> None:
        """All iterations from `begin`, each reported to `after_iteration`, and the moment at which
        weights begin to move to `before_learning`; stops early after `max_minutes`, at a threshold
        of `stop`, and between two where it is asked to.
        """
        self._started = perf_counter()
        for iteration in range(begin, self.budget.iterations):
            if self.ended is not None or is_asked_to_stop():
                break
            gathering = self.parts.scorer.begin(self._judge, self.budget.group_size)
            with self._timed("iteration"), gathering:
                self.parts.model.evaluations.taken()  # what was evaluated in between is no cost
                with self._timed("sample"):
                    rollout = self.sample(iteration, gathering.add)
                hardware = self.parts.hardware
                drawn, sampled = int(hardware.total(len(rollout))), self._evaluations()
                with self._timed("score"):
                    rollout, metrics = self.score(rollout, gathering.scores)
                with self._timed("learn"):
                    before_learning()
                    metrics |= self.learner.learn(rollout, iteration)
            if rollout.images is not None:
                metrics |= evaluation_metrics(sampled, self._evaluations(), drawn)
                metrics["nfe/total"] = self.evaluations
            metrics |= {f"time/{name}": spent for name, spent in self._seconds.items()}
            metrics["time/score_hidden"] = gathering.hidden
            metrics["memory/peak_gb"] = hardware.largest(hardware.peak_memory())
            # before it is reported, so that what is saved then knows of it
            self.ended = self._reason_to_stop(metrics)
            if self.ended is not None:
                log.info("stopped after iteration %d: %s", iteration + 1, self.ended)
            after_iteration(iteration, metrics, rollout)

    @property
    def elapsed(self) -> float:
        """Seconds of training, those of earlier sittings among them."""
        sitting = 0.0 if self._started is None else perf_counter() - self._started
        return self.seconds + sitting

    def _evaluations(self) -> Evaluations:
        """Those of all processes since the last time, which also go into the total."""
        counted, hardware = self.parts.model.evaluations.taken(), self.parts.hardware
        counted = Evaluations(
            int(hardware.total(counted.forward)), int(hardware.total(counted.trained))
        )
        self.evaluations += counted.forward + counted.trained
        return counted

    def _reason_to_stop(self, metrics: Metrics) -> str | None:
        late = self.elapsed / 60 > (self.budget.max_minutes or math.inf)
        if self.parts.hardware.any(late):
            return f"max_minutes={self.budget.max_minutes} have passed"
        reward = metrics[f"reward/{self.parts.reward.main}/mean"]
        return self.parts.stop.update(metrics.get(KL), reward)

    def _judge(self, samples: Samples) -> dict[str, Tensor]:
        fault("scoring")
        return judge(self.parts.reward, samples)

    def sample(self, iteration: int, finished: Callable[[Samples], None] | None = None) -> Rollout:
        """`group_size` samples for each of this iteration's prompts, from the behaviour policy;
        `finished` is told of each batch of them as soon as it is drawn.
        """
        parts, budget = self.parts, self.budget
        prompts = parts.prompts.draw(
            budget.prompts_per_iteration, seed=budget.seed, iteration=iteration
        )
        groups = torch.arange(len(prompts)).repeat_interleave(budget.group_size)
        rows = own_rows(groups, parts.hardware)
        self.watcher.phase("sample", total=len(groups if rows is None else rows))
        drawn = []
        with parts.model.weights(parts.algo.behaviour):
            for batch in parts.sampler.batches(
                prompts, groups, seed=budget.seed, iteration=iteration, rows=rows
            ):
                fault("sampling")
                self.meet()  # groups are dealt evenly, so all draw equally many batches
                drawn.append(batch)
                if finished is not None:
                    finished(samples_of(batch))
        return join(drawn)

    def score(
        self, rollout: Rollout, found: Callable[[], dict[str, Tensor]] | None = None
    ) -> tuple[Rollout, Metrics]:
        """Rewards and advantages; samples that could not be scored are left out of both.

        `found` waits for scores that were begun while the samples were drawn. Of several processes
        each has its part, and all know and compare the whole.
        """
        parts, hardware = self.parts, self.parts.hardware
        self.watcher.phase("score", total=len(rollout))
        found = found or partial(self._judge, samples_of(rollout))
        rollout = whole = replace(rollout, rewards=found())
        if hardware.world_size > 1:
            # before any are left out, so that all processes run the network equally often
            rollout = parts.regularizer.shape(parts.model, rollout)
            whole = gathered(rollout, hardware)
            rollout = replace(rollout, whole=Whole(whole))
        metrics = reward_metrics(whole) | picture_metrics(rollout, hardware)
        trained = parts.reward.normalised(whole.rewards, whole.groups)
        whole = replace(whole, rewards=trained)
        names = parts.algo.trained_scores(parts.reward.main)
        whole = scored(whole, names, self.budget.max_failed)
        metrics |= zero_groups(whole, names)
        if hardware.world_size == 1:
            whole = parts.regularizer.shape(parts.model, whole)
        whole = parts.algo.appraise(whole, parts.reward.main)
        if len(whole):
            metrics["advantage/std"] = float(present(whole.advantage, "advantages").std())
        return with_whole(rollout, whole), metrics

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        begun = perf_counter()
        yield
        self._seconds[phase] = perf_counter() - begun
