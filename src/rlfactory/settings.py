"""The schema of the configuration's root: what every experiment has, whatever it chooses."""

from dataclasses import dataclass
from typing import Literal

from rlfactory.model.averaging import Average
from rlfactory.types import (
    Component,
    Fraction,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveFraction,
    PositiveInt,
)

GROUPS = {
    "schedule": "at which noise levels a sample is drawn",
    "window": "which of the steps are stochastic and trained",
    "times": "at which noise levels final samples are learned from",
    "advantage": "how much better a sample is than others",
    "dynamics": "how a sample is drawn, and how likely it was",
    "regularizer": "what keeps the policy near another one",
    "reward": "what a sample is worth",
    "prompts": "what is asked",
    "precision": "in what precision the network computes",
    "memory": "what is given up for memory",
    "optimizer": "how gradients move the weights",
    "algo": "how rewards become gradients",
    "model": "what is trained",
    "hardware": "where it runs",
    "logger": "where metrics go besides metrics.jsonl",
    "experiment": "a named bundle of overrides",
}
COMPONENTS = [group for group in GROUPS if group != "experiment"]


@dataclass(frozen=True)
class LearningRate:
    """The course of the optimiser's learning rates, in iterations."""

    warmup: NonNegativeInt
    final_scale: Fraction
    zero_first: bool


@dataclass(frozen=True)
class Stop:
    """When a run ends early."""

    kl: Positive | None
    reward: float | None
    window: PositiveInt
    patience: PositiveInt
    mode: Literal["any", "all"]


@dataclass(frozen=True)
class Evaluation:
    """When and on how much the run is evaluated; 0 is never (in between)."""

    prompts: PositiveInt
    every: NonNegativeInt
    preview_every: NonNegativeInt
    weights: Literal["ema", "policy"]
    steps: PositiveInt | None
    size: PositiveInt | None
    grid: PositiveInt


@dataclass(frozen=True)
class Checkpoint:
    """When a run is saved besides at its end, and what of it stays; 0 is never."""

    every: NonNegativeInt
    minutes: NonNegative
    keep: PositiveInt | None
    keep_every: NonNegativeInt
    best: bool
    background: bool
    snapshot: bool
    requeue: bool
    on_error: Literal["stop", "wait"]
    patience: Positive


@dataclass(frozen=True)
class Guard:
    """What is done about an update that is not finite."""

    non_finite: Literal["stop", "skip"]
    max_skipped: PositiveInt


@dataclass(frozen=True)
class EvalRewards:
    """What the held-out samples are judged by besides the reward that trains."""

    of: list[str]
    parts: dict[str, Component]


@dataclass(frozen=True)
class Scoring:
    """Where and when rewards are computed."""

    background: Literal["thread", "process", "none"]
    processes: PositiveInt
    timeout: Positive | None
    device: str | None
    offload: bool


@dataclass(frozen=True)
class Settings:
    """The root's own keys; the groups stand beside them."""

    seed: NonNegativeInt
    iterations: PositiveInt
    prompts_per_iteration: PositiveInt
    group_size: PositiveInt
    epochs: PositiveInt
    updates_per_iteration: PositiveInt
    shares: Literal["random", "even"]
    micro_batch: PositiveInt
    sample_batch: PositiveInt
    branches: PositiveInt
    branch_at: Literal["window", "step"]
    latent_storage: Literal["float32", "bfloat16", "float16"]
    tail: PositiveFraction | None
    max_grad_norm: Positive
    max_failed: Fraction
    max_minutes: Positive | None
    target_kl: Positive | None
    learning_rate: LearningRate
    stop: Stop
    ema: Average
    old: Average
    evaluation: Evaluation
    eval_rewards: EvalRewards
    scoring: Scoring
    checkpoint: Checkpoint
    guard: Guard
    prompt_cache: str | None
    begin_from: str | None
    run_dir: str | None
    trust: list[str]
