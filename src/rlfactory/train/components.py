"""What an experiment is made of: live objects, numbers, and the protocol of progress displays."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch

from rlfactory.algo.base import Algorithm
from rlfactory.hardware.base import Hardware
from rlfactory.model.base import ImageModel
from rlfactory.model.ema import EMASchedule
from rlfactory.model.text_base import TextModel
from rlfactory.prompts.base import Prompt, Prompts
from rlfactory.regularizer.base import Regularizer
from rlfactory.reward.base import Reward
from rlfactory.train.sampling.base import Sampler
from rlfactory.train.scoring.async_scorer import Scorer
from rlfactory.train.stopping import RunStop

Metrics = dict[str, float]
Decay = Literal["linear", "cosine"]
Shares = Literal["random", "even", "groups"]
"""How an epoch's samples are split into minibatches, see `learner.split_minibatches`."""


@dataclass(frozen=True)
class Components:
    """The live objects of an experiment.

    Attributes:
        averages: the schedules of the weight sets that follow the policy, by name (`ema`, `old`).
        eval_rewards: rewards that score evaluation samples only, by name.
        prompt_sets: the prompts of further prompt sets of evaluations, by name.
        scorer: how and when rewards are computed.
    """

    model: ImageModel | TextModel
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
        """What the components remember besides tensors, as plain values."""
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


class ProgressListener(Protocol):
    """Shows how far a phase is; called often, and may raise to stop the run."""

    def phase(self, name: str, *, total: int) -> None:
        """A phase of `total` samples or training items begins."""

    def advance(self, count: int) -> None:
        """So many more of them are done; 0 for a step too small to show."""


class NoProgress:
    """A progress listener that shows nothing."""

    def phase(self, name: str, *, total: int) -> None:
        """Ignore a phase."""

    def advance(self, count: int) -> None:
        """Ignore progress."""


def learning_rate_factor(
    iteration: int,
    *,
    iterations: int,
    warmup: int,
    final_scale: float,
    zero_first: bool,
    schedule: Decay = "linear",
) -> float:
    """The factor at an iteration, from 0.

    At iteration i it is `(i + 1) / warmup` during warm-up, then falls from 1 at `warmup` to
    `final_scale` at the last iteration: in a straight line, or with `schedule="cosine"` by half a
    period of a cosine (arXiv 1608.03983, eq. 5, without restarts). With `zero_first` warm-up is
    `i / warmup`, so that nothing is learned from the first iteration, and the decay ends one
    iteration after the last, as in the walkthrough that `experiment=gpt2_negative` follows.
    """
    if iteration < warmup:
        return (iteration + (0 if zero_first else 1)) / warmup
    last = iterations if zero_first else iterations - 1
    progress = min((iteration - warmup) / max(last - warmup, 1), 1.0)
    if schedule == "cosine":
        progress = (1 - math.cos(math.pi * progress)) / 2
    return 1 - (1 - final_scale) * progress
