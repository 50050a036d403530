"""The parts of an experiment: live objects, numbers, the stop rule, and the protocol of progress
displays.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, Protocol

import torch

from rlfactory.algo.base import Algorithm
from rlfactory.hardware.base import Hardware
from rlfactory.model.base import Model
from rlfactory.model.ema import EMASchedule
from rlfactory.prompts.base import Prompt, Prompts
from rlfactory.regularizer.base import Regularizer
from rlfactory.reward.base import Reward
from rlfactory.train.sampling.base import Sampler
from rlfactory.train.scoring.async_scorer import Scorer
from rlfactory.utils.types import Positive, PositiveInt

Metrics = dict[str, float]
Decay = Literal["linear", "cosine"]
Shares = Literal["random", "even", "groups"]
"""How an epoch's samples are split into minibatches, see `minibatches.split_minibatches`."""


class RunStop:
    """Ends a run once its thresholds have been exceeded `patience` iterations in a row.

    A threshold is exceeded where the mean over the last `window` iterations is above it; before
    there are so many iterations it is not.

    Args:
        kl: the threshold of the KL divergence, in nats per token for texts; None for none.
        reward: the threshold of the mean reward; None for none.
        window: the number of iterations in a mean.
        patience: the number of iterations in a row.
        mode: whether `any` threshold must be exceeded or `all` of them.
    """

    def __init__(
        self,
        *,
        kl: Positive | None = None,
        reward: float | None = None,
        window: PositiveInt = 1,
        patience: PositiveInt = 1,
        mode: Literal["any", "all"] = "any",
    ) -> None:
        thresholds = {"KL": kl, "reward": reward}
        self.thresholds = {name: value for name, value in thresholds.items() if value is not None}
        self.window, self.patience = window, patience
        self._required = len(self.thresholds) if mode == "all" else 1
        self._past = {name: deque[float](maxlen=window) for name in self.thresholds}
        self._count = 0

    def update(self, kl: float | None, reward: float | None) -> str | None:
        """Note the means of an iteration.

        Returns:
            Why the run must stop, or None. What was not measured, None, exceeds no threshold.
        """
        latest = {"KL": kl, "reward": reward}
        exceeded = [text for name in self.thresholds if (text := self._check(name, latest[name]))]
        is_met = exceeded and len(exceeded) >= self._required
        self._count = self._count + 1 if is_met else 0
        if self._count < self.patience:
            return None
        return f"{' and '.join(exceeded)}, {self._count} iterations in a row."

    def _check(self, name: str, value: float | None) -> str | None:
        """How a threshold is exceeded, or None."""
        past = self._past[name]
        if value is None:
            return None
        past.append(value)
        mean, threshold = fmean(past), self.thresholds[name]
        if len(past) < self.window or not mean > threshold:
            return None
        return f"{name} {mean:.4g} is above {threshold:g}"

    def state_dict(self) -> dict[str, Any]:
        """The windows and the count, fit for JSON."""
        past = {name: list(values) for name, values in self._past.items()}
        return {"past": past, "count": self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; a threshold added since then begins with an empty window."""
        for name, past in self._past.items():
            past.clear()
            past.extend(map(float, state["past"].get(name, [])))
        self._count = int(state["count"])


@dataclass(frozen=True)
class Components:
    """The live objects of an experiment.

    Attributes:
        averages: the schedules of the weight sets that follow the policy, by name (`ema`, `old`).
        eval_rewards: rewards that score evaluation samples only, by name.
        prompt_sets: the prompts of further prompt sets of evaluations, by name.
        scorer: how and when rewards are computed.
    """

    model: Model
    sampler: Sampler
    algo: Algorithm[Any, Any, Any]
    regularizer: Regularizer[Any, Any, Any]
    reward: Reward
    prompts: Prompts
    hardware: Hardware
    optimizer: torch.optim.Optimizer
    stop: RunStop
    averages: Mapping[str, EMASchedule]
    eval_rewards: Mapping[str, Reward] = field(default_factory=dict)
    prompt_sets: Mapping[str, list[Prompt]] = field(default_factory=dict)
    scorer: Scorer = field(default_factory=Scorer)

    def state_dict(self) -> dict[str, Any]:
        """The memory of the components besides tensors, as plain values."""
        coefficients, advantage = self.regularizer.coefficients, self.algo.advantage
        return {
            "coefficients": {name: c.state_dict() for name, c in coefficients.items()},
            "advantage": None if advantage is None else advantage.state_dict(),
            "reward": self.reward.state_dict(),
            "stop": self.stop.state_dict(),
            "hardware": self.hardware.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; a component that it does not know keeps its initial state."""
        for name, coefficient in self.regularizer.coefficients.items():
            if name in state["coefficients"]:
                coefficient.load_state_dict(state["coefficients"][name])
        if self.algo.advantage is not None and state["advantage"] is not None:
            self.algo.advantage.load_state_dict(state["advantage"])
        self.reward.load_state_dict(state["reward"])
        self.stop.load_state_dict(state["stop"])
        self.hardware.load_state_dict(state["hardware"])


@dataclass(frozen=True)
class TrainingBudget:
    """The numbers of an experiment, as `conf/config.yaml` describes them.

    All of them are global: the same whatever the number of processes. `warmup`, `final_scale`,
    `zero_first` and `schedule` are those of the learning rate.
    """

    seed: int
    iterations: int
    prompts_per_iteration: int
    group_size: int
    epochs: int
    updates_per_iteration: int
    micro_batch: int
    max_grad_norm: float
    max_failed: float
    shares: Shares = "random"
    resample: int = 0
    target_kl: float | None = None
    max_minutes: float | None = None
    warmup: int = 0
    final_scale: float = 1.0
    zero_first: bool = False
    schedule: Decay = "linear"

    def learning_rate_factor(self, iteration: int) -> float:
        """The factor of the learning rate at an iteration, from 0.

        At iteration i it is `(i + 1) / warmup` during warm-up, then falls from 1 at `warmup` to
        `final_scale` at the last iteration: in a straight line, or with `schedule="cosine"` by half
        a period of a cosine (arXiv 1608.03983, eq. 5, without restarts). With `zero_first` warm-up
        is `i / warmup`, so that nothing is learned from the first iteration, and the decay ends one
        iteration after the last, as in the walkthrough that `experiment=gpt2_negative` follows.
        """
        if iteration < self.warmup:
            return (iteration + (not self.zero_first)) / self.warmup
        last = self.iterations - (not self.zero_first)
        progress = min((iteration - self.warmup) / max(last - self.warmup, 1), 1.0)
        if self.schedule == "cosine":
            progress = (1 - math.cos(math.pi * progress)) / 2
        return 1 - (1 - self.final_scale) * progress


class ProgressListener(Protocol):
    """Shows how far a phase is; called often, and may raise to stop the run."""

    def phase(self, name: str, *, total: int) -> None:
        """A phase of `total` samples or training items begins."""

    def advance(self, count: int) -> None:
        """So many more of them are done; 0 for a step too small to show."""


class NoProgress:
    """A progress listener that shows nothing."""

    def phase(self, name: str, *, total: int) -> None:
        pass

    def advance(self, count: int) -> None:
        pass
