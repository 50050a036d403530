"""The loop: sample, score, compare, learn."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Literal, Protocol

import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.algo.base import Algorithm
from rlfactory.dynamics.base import Dynamics
from rlfactory.dynamics.window import Window
from rlfactory.hardware.base import Hardware
from rlfactory.model.base import ImageModel
from rlfactory.model.decay import power_decay
from rlfactory.model.sampling import sample
from rlfactory.model.weights import EMA
from rlfactory.prompts.base import Prompt, Prompts
from rlfactory.regularizer.base import Regularizer
from rlfactory.reward.base import Reward
from rlfactory.rollout import Batch, Rollout, chunks, join
from rlfactory.run.tally import Tally
from rlfactory.scoring import TrainingError, require_replay, reward_metrics, score, scored

log = logging.getLogger(__name__)

Metrics = dict[str, float]


@dataclass(frozen=True)
class Parts:
    """The live objects of an experiment."""

    model: ImageModel
    dynamics: Dynamics
    sigmas: Tensor
    window: Window
    algo: Algorithm
    regularizer: Regularizer
    reward: Reward
    prompts: Prompts
    hardware: Hardware
    optimizer: torch.optim.Optimizer


@dataclass(frozen=True)
class Budget:
    """The numbers of an experiment; all of them are global, whatever the number of processes."""

    seed: int
    iterations: int
    prompts_per_iteration: int
    group_size: int
    updates_per_iteration: int
    micro_batch: int
    sample_batch: int
    max_grad_norm: float
    max_failed: float
    ema_decay: float
    max_minutes: float | None = None
    start_noise: Literal["own", "group"] = "own"


class Watcher(Protocol):
    """Whoever shows what the loop is doing."""

    def phase(self, name: str, *, total: int) -> None:
        """A phase of `total` samples or training items begins."""

    def advance(self, count: int) -> None:
        """That many more of them are done."""


@dataclass
class Trainer:
    """Runs the loop over its parts; `updates` counts optimiser steps."""

    parts: Parts
    budget: Budget
    watcher: Watcher
    updates: int = 0
    _seconds: dict[str, float] = field(default_factory=dict)

    def run(self, after_iteration: Callable[[int, Metrics, Rollout], None]) -> None:
        """All iterations, each reported to `after_iteration`; stops early after `max_minutes`."""
        started = perf_counter()
        for iteration in range(self.budget.iterations):
            with self._timed("iteration"):
                with self._timed("sample"):
                    rollout = self.sample(iteration)
                with self._timed("score"):
                    rollout, metrics = self.score(rollout)
                with self._timed("learn"):
                    metrics |= self.learn(rollout, iteration)
            metrics |= {f"time/{name}": spent for name, spent in self._seconds.items()}
            metrics["memory/peak_gb"] = self.parts.hardware.peak_memory()
            after_iteration(iteration, metrics, rollout)
            if (perf_counter() - started) / 60 > (self.budget.max_minutes or math.inf):
                log.info("stopped after %s minutes, as max_minutes says", self.budget.max_minutes)
                break

    def sample(self, iteration: int) -> Rollout:
        """`group_size` samples for each of this iteration's prompts, from the behaviour policy."""
        parts, budget = self.parts, self.budget
        prompts = parts.prompts.draw(
            budget.prompts_per_iteration, seed=budget.seed, iteration=iteration
        )
        groups = torch.arange(len(prompts)).repeat_interleave(budget.group_size)
        self.watcher.phase("sample", total=len(groups))
        with parts.model.weights(parts.algo.behaviour):
            return join(
                [
                    self._rollout([prompts[g] for g in groups[rows]], groups[rows], rows, iteration)
                    for rows in chunks(len(groups), budget.sample_batch)
                ]
            )

    def _rollout(
        self, prompts: list[Prompt], groups: Tensor, index: Tensor, iteration: int
    ) -> Rollout:
        parts, seed = self.parts, self.budget.seed
        model, rows, key = parts.model, index.tolist(), [iteration]
        condition = model.encode([prompt.text for prompt in prompts])
        starts = groups.tolist() if self.budget.start_noise == "group" else rows
        start = keyed.normal(seed, "start", key, starts, model.latent_shape).to(model.device)
        window, noise = [], None
        if parts.algo.needs == "transitions":
            window = parts.window.steps(len(parts.sigmas) - 1, seed=seed, iteration=iteration)
            shape = [len(window), *model.latent_shape]
            noise = keyed.normal(seed, "steps", key, rows, shape).to(model.device)
        latents, transitions = sample(
            model,
            condition,
            start,
            parts.sigmas,
            dynamics=parts.dynamics,
            window=window,
            step_noise=noise,
        )
        images = model.decode(latents)
        self.watcher.advance(len(rows))
        return Rollout(
            prompts=[prompt.text for prompt in prompts],
            metadata=[prompt.metadata for prompt in prompts],
            groups=groups,
            index=index,
            condition=condition,
            latents=latents,
            images=images,
            transitions=transitions,
            rewards={},
        )

    def score(self, rollout: Rollout) -> tuple[Rollout, Metrics]:
        """Rewards and advantages; samples that could not be scored are left out of both."""
        reward, algo = self.parts.reward, self.parts.algo
        self.watcher.phase("score", total=len(rollout))
        rollout = replace(rollout, rewards=score(reward, rollout))
        metrics = reward_metrics(rollout)
        rollout = scored(rollout, reward.main, self.budget.max_failed)
        advantage = algo.advantages(rollout.rewards[reward.main], rollout.groups)
        metrics["advantage/std"] = float(advantage.std())
        return replace(rollout, advantage=advantage), metrics

    def learn(self, rollout: Rollout, iteration: int) -> Metrics:
        """`updates_per_iteration` optimiser steps, each on its own share of the samples."""
        parts, budget = self.parts, self.budget
        tally = Tally()
        order = torch.randperm(
            len(rollout), generator=keyed.generator(budget.seed, "order", iteration)
        )
        for update, rows in enumerate(order.tensor_split(budget.updates_per_iteration)):
            batch = parts.algo.items(
                rollout[rows], parts.model, seed=budget.seed, iteration=iteration
            )
            if update == 0:
                self.watcher.phase("learn", total=len(batch) * budget.updates_per_iteration)
            self._accumulate(batch, tally)
            if update == 0:
                require_replay(tally, parts.algo.ratio_tolerance)
            tally.add("grad/norm", self._update())
        return tally.means() | parts.algo.after_iteration(parts.model, self.updates)

    def _accumulate(self, batch: Batch, tally: Tally) -> None:
        parts = self.parts
        for chunk in batch.split(self.budget.micro_batch):
            loss = parts.algo.loss(parts.model, chunk)
            penalty, kl = parts.regularizer.penalty(parts.model, chunk, loss.outputs)
            total = loss.value + penalty
            if not torch.isfinite(total):
                raise TrainingError(f"the loss is {total.item()}; try a smaller optimizer.lr")
            parts.hardware.backward(total * (len(chunk) / len(batch)))
            tally.extend(loss.metrics)
            if parts.regularizer.needs != "nothing":
                tally.extend({"loss/total": total.detach(), "kl/reference": kl})
            self.watcher.advance(len(chunk))

    def _update(self) -> float:
        parts, budget = self.parts, self.budget
        parameters = list(parts.model.weights.parameters.values())
        norm = parts.hardware.step(parts.optimizer, parameters, budget.max_grad_norm)
        if not math.isfinite(norm):
            raise TrainingError(f"the gradient's norm is {norm}; try a smaller optimizer.lr")
        self.updates += 1
        parts.model.weights.update(EMA, power_decay(self.updates, budget.ema_decay))
        return norm

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        begun = perf_counter()
        yield
        self._seconds[phase] = perf_counter() - begun
