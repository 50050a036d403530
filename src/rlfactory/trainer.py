"""The loop: sample, score, compare, learn."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter

import torch

from rlfactory.learner import Learner
from rlfactory.model.evaluations import Evaluations, evaluation_metrics
from rlfactory.nest import present
from rlfactory.parts import Budget, Metrics, Parts, Watcher
from rlfactory.regularizer.base import KL
from rlfactory.rollout import Rollout
from rlfactory.scoring import reward_metrics, score, scored, zero_groups

log = logging.getLogger(__name__)


@dataclass
class Trainer:
    """Runs the loop over its parts; `evaluations` counts those of the network."""

    parts: Parts
    budget: Budget
    watcher: Watcher
    evaluations: int = 0
    learner: Learner = field(init=False)
    _seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.learner = Learner(self.parts, self.budget, self.watcher)

    def run(self, after_iteration: Callable[[int, Metrics, Rollout], None]) -> None:
        """All iterations, each reported to `after_iteration`; stops early after `max_minutes`."""
        started = perf_counter()
        for iteration in range(self.budget.iterations):
            with self._timed("iteration"):
                self.parts.model.evaluations.taken()  # what was evaluated in between is no cost
                with self._timed("sample"):
                    rollout = self.sample(iteration)
                drawn, sampled = len(rollout), self._evaluations()
                with self._timed("score"):
                    rollout, metrics = self.score(rollout)
                with self._timed("learn"):
                    metrics |= self.learner.learn(rollout, iteration)
            if rollout.images is not None:
                metrics |= evaluation_metrics(sampled, self._evaluations(), drawn)
                metrics["nfe/total"] = self.evaluations
            metrics |= {f"time/{name}": spent for name, spent in self._seconds.items()}
            metrics["memory/peak_gb"] = self.parts.hardware.peak_memory()
            after_iteration(iteration, metrics, rollout)
            if (reason := self._reason_to_stop(metrics, started)) is not None:
                log.info("stopped after iteration %d: %s", iteration + 1, reason)
                break

    def _evaluations(self) -> Evaluations:
        """Those since the last time, which also go into the total."""
        counted = self.parts.model.evaluations.taken()
        self.evaluations += counted.forward + counted.trained
        return counted

    def _reason_to_stop(self, metrics: Metrics, started: float) -> str | None:
        if (perf_counter() - started) / 60 > (self.budget.max_minutes or math.inf):
            return f"max_minutes={self.budget.max_minutes} have passed"
        reward = metrics[f"reward/{self.parts.reward.main}/mean"]
        return self.parts.stop.update(metrics.get(KL), reward)

    def sample(self, iteration: int) -> Rollout:
        """`group_size` samples for each of this iteration's prompts, from the behaviour policy."""
        parts, budget = self.parts, self.budget
        prompts = parts.prompts.draw(
            budget.prompts_per_iteration, seed=budget.seed, iteration=iteration
        )
        groups = torch.arange(len(prompts)).repeat_interleave(budget.group_size)
        self.watcher.phase("sample", total=len(groups))
        with parts.model.weights(parts.algo.behaviour):
            return parts.sampler.rollout(prompts, groups, seed=budget.seed, iteration=iteration)

    def score(self, rollout: Rollout) -> tuple[Rollout, Metrics]:
        """Rewards and advantages; samples that could not be scored are left out of both."""
        parts = self.parts
        self.watcher.phase("score", total=len(rollout))
        rollout = replace(rollout, rewards=score(parts.reward, rollout))
        metrics = reward_metrics(rollout)
        names = parts.algo.trained_scores(parts.reward.main)
        rollout = scored(rollout, names, self.budget.max_failed)
        metrics |= zero_groups(rollout, names)
        rollout = parts.regularizer.shape(parts.model, rollout)
        rollout = parts.algo.appraise(rollout, parts.reward.main)
        if len(rollout):
            metrics["advantage/std"] = float(present(rollout.advantage, "advantages").std())
        return rollout, metrics

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        begun = perf_counter()
        yield
        self._seconds[phase] = perf_counter() - begun
