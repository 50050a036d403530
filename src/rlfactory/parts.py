"""What an experiment is made of: its live objects, its numbers, and whoever watches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from rlfactory.algo.base import Algorithm
from rlfactory.hardware.base import Hardware
from rlfactory.model.averaging import Average
from rlfactory.model.base import ImageModel
from rlfactory.model.text import TextModel
from rlfactory.overlap import Scorer
from rlfactory.prompts.base import Prompts
from rlfactory.regularizer.base import Regularizer
from rlfactory.reward.base import Reward
from rlfactory.run.stopping import RunStop
from rlfactory.sampler.base import Sampler
from rlfactory.shares import Shares

Metrics = dict[str, float]


@dataclass(frozen=True)
class Parts:
    """The live objects of an experiment; `averages` are the weight sets that follow the policy,
    and `eval_rewards` judge held-out samples besides the reward that trains.
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
    averages: Mapping[str, Average]
    eval_rewards: Mapping[str, Reward] = field(default_factory=dict)
    scorer: Scorer = field(default_factory=Scorer)


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
    shares: Shares = "random"
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


class Silent:
    """A watcher that shows nothing."""

    def phase(self, name: str, *, total: int) -> None:
        """Ignore a phase."""

    def advance(self, count: int) -> None:
        """Ignore progress."""
