"""The loop: sample, score, compare, learn."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.algo.base import Algorithm
from rlfactory.algo.learning_rate import factor
from rlfactory.algo.remember import remembered
from rlfactory.hardware.base import Hardware
from rlfactory.model.averaging import Average, Clock
from rlfactory.model.base import ImageModel
from rlfactory.model.evaluations import Evaluations, evaluation_metrics
from rlfactory.model.text import TextModel
from rlfactory.model.weights import POLICY
from rlfactory.prompts.base import Prompts
from rlfactory.regularizer.base import KL, Regularizer
from rlfactory.reward.base import Reward
from rlfactory.rollout import Items, Rollout, TokenBatch, present
from rlfactory.run.stopping import RunStop
from rlfactory.run.tally import Tally
from rlfactory.sampler.base import Sampler
from rlfactory.scoring import (
    TrainingError,
    require_replay,
    reward_metrics,
    score,
    scored,
    zero_groups,
)

log = logging.getLogger(__name__)

Metrics = dict[str, float]


@dataclass(frozen=True)
class Parts:
    """The live objects of an experiment; `averages` are the weight sets that follow the policy."""

    model: ImageModel | TextModel
    sampler: Sampler
    algo: Algorithm[Any, Any, Any]
    regularizer: Regularizer[Any, Any, Any]
    reward: Reward
    prompts: Prompts
    hardware: Hardware
    optimizer: torch.optim.Optimizer
    stop: RunStop
    averages: Mapping[str, Average]


@dataclass(frozen=True)
class Budget:
    """The numbers of an experiment; all of them are global, whatever the number of processes."""

    seed: int
    iterations: int
    prompts_per_iteration: int
    group_size: int
    epochs: int
    updates_per_iteration: int
    micro_batch: int
    max_grad_norm: float
    max_failed: float
    target_kl: float | None = None
    max_minutes: float | None = None
    warmup: int = 0
    final_scale: float = 1.0
    zero_first: bool = False


class Watcher(Protocol):
    """Whoever shows what the loop is doing."""

    def phase(self, name: str, *, total: int) -> None:
        """A phase of `total` samples or training items begins."""

    def advance(self, count: int) -> None:
        """That many more of them are done."""


@dataclass
class Trainer:
    """Runs the loop over its parts; `updates` counts optimiser steps, `evaluations` those of the
    network.
    """

    parts: Parts
    budget: Budget
    watcher: Watcher
    updates: int = 0
    evaluations: int = 0
    _seconds: dict[str, float] = field(default_factory=dict)

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
                    metrics |= self.learn(rollout, iteration)
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

    def learn(self, rollout: Rollout, iteration: int) -> Metrics:
        """`epochs` passes of `updates_per_iteration` optimiser steps, each on its own share."""
        parts, budget, tally = self.parts, self.budget, Tally()
        self._set_learning_rate(iteration)
        rollout = self._remember(rollout, iteration)
        for epoch in range(budget.epochs):
            if self._far_enough(tally):
                break
            for share in self._shares(len(rollout), iteration, epoch):
                self._learn_from(rollout[share], iteration, tally)
        metrics = tally.means()
        self._steer("iteration", metrics, rollout)
        if KL in metrics and rollout.tokens is not None:
            metrics["kl/sequence"] = metrics[KL] * rollout.mean_length
        coefficients = parts.regularizer.coefficients
        metrics |= {name: coefficient.value for name, coefficient in coefficients.items()}
        metrics["optimizer/lr"] = self.parts.optimizer.param_groups[0]["lr"]
        return metrics | self._follow("iteration", iteration)

    def _remember(self, rollout: Rollout, iteration: int) -> Rollout:
        """The rollout with what the policy says now of samples that it will have moved away from.

        Those of the first update are not among them: there a ratio is 1 by construction.
        """
        parts, budget, algo = self.parts, self.budget, self.parts.algo
        if not algo.surrogate:
            return rollout
        shares = self._shares(len(rollout), iteration, 0)
        if algo.shortcut and algo.behaviour == POLICY and budget.epochs == 1:
            shares = shares[1:]
        return remembered(
            algo,
            parts.model,
            rollout,
            shares,
            micro_batch=budget.micro_batch,
            seed=budget.seed,
            iteration=iteration,
        )

    def _shares(self, count: int, iteration: int, epoch: int) -> Sequence[Tensor]:
        """The samples in random order, as many parts as there are updates in an epoch."""
        key = [iteration, epoch] if epoch else [iteration]
        order = torch.randperm(count, generator=keyed.generator(self.budget.seed, "order", *key))
        return order.tensor_split(self.budget.updates_per_iteration)

    def _learn_from(self, samples: Rollout, iteration: int, tally: Tally) -> None:
        """One optimiser step."""
        parts, budget = self.parts, self.budget
        is_first = len(tally) == 0
        batch = parts.algo.items(samples, parts.model, seed=budget.seed, iteration=iteration)
        if is_first:
            total = len(batch) * budget.updates_per_iteration * budget.epochs
            self.watcher.phase("learn", total=total)
        self._accumulate(batch, tally)
        if is_first:
            require_replay(tally, parts.algo.ratio_tolerance)
        tally.add("grad/norm", self._update())
        for name, decay in self._follow("step", iteration).items():
            tally.add(name, decay)
        self._steer("step", tally.latest_of("kl/"), samples)

    def _far_enough(self, tally: Tally) -> bool:
        """Whether the last update has moved the policy by more than `target_kl`."""
        moved, target = tally.latest("kl/approx"), self.budget.target_kl
        return moved is not None and target is not None and moved > target

    def _steer(self, moment: str, metrics: Mapping[str, float], rollout: Rollout) -> None:
        """Let the penalties' coefficients follow the divergences of their samples."""
        self.parts.regularizer.steer(moment, metrics, rollout.mean_length, len(rollout))

    def _set_learning_rate(self, iteration: int) -> None:
        budget = self.budget
        scale = factor(
            iteration,
            total=budget.iterations,
            warmup=budget.warmup,
            final_scale=budget.final_scale,
            zero_first=budget.zero_first,
        )
        for group in self.parts.optimizer.param_groups:
            group["lr"] = scale * group.setdefault("peak_lr", group["lr"])

    def _accumulate(self, batch: Items | TokenBatch, tally: Tally) -> None:
        parts = self.parts
        for chunk in batch.split(self.budget.micro_batch):
            loss = parts.algo.loss(parts.model, chunk)
            penalty, divergences = parts.regularizer.penalty(parts.model, chunk, loss.outputs)
            total = loss.value + penalty
            if not torch.isfinite(total):
                raise TrainingError(f"the loss is {total.item()}; try a smaller optimizer.lr")
            parts.hardware.backward(total * (chunk.weight / batch.weight))
            # a term that has the name of one of the algorithm's metrics takes its place
            tally.extend(loss.metrics | divergences)
            if divergences:
                tally.extend({"loss/total": total.detach()})
            self.watcher.advance(len(chunk))

    def _update(self) -> float:
        parts, budget = self.parts, self.budget
        parameters = list(parts.model.weights.parameters.values())
        norm = parts.hardware.step(parts.optimizer, parameters, budget.max_grad_norm)
        if not math.isfinite(norm):
            raise TrainingError(f"the gradient's norm is {norm}; try a smaller optimizer.lr")
        self.updates += 1
        return norm

    def _follow(self, moment: Clock, iteration: int) -> Metrics:
        """Move each weight set whose moment this is; the decays."""
        decays: Metrics = {}
        for name, average in self.parts.averages.items():
            decay = average.due(moment, step=self.updates, iteration=iteration + 1)
            if decay is not None:
                self.parts.model.weights.update(name, decay)
                decays[f"{name}/decay"] = decay
        return decays

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        begun = perf_counter()
        yield
        self._seconds[phase] = perf_counter() - begun
