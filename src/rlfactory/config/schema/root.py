"""The schema of the configuration's root: the groups, and the keys that every experiment has."""

from dataclasses import dataclass
from typing import Literal

from rlfactory.model.ema import EMASchedule
from rlfactory.utils.types import (
    Fraction,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveFraction,
    PositiveInt,
    Size,
    TargetNode,
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
    "engine": "what draws the responses that a language model learns from",
    "recipe": "which published settings a model and an algorithm bring",
    "hardware": "where it runs",
    "logger": "where metrics go besides metrics.jsonl",
    "experiment": "a named bundle of overrides",
}
COMPONENTS = [group for group in GROUPS if group not in ("recipe", "experiment")]


@dataclass(frozen=True)
class LearningRateConfig:
    """The learning rate schedule, in iterations, and the rates that `auto` stands for."""

    warmup: NonNegativeInt
    final_scale: Fraction
    zero_first: bool
    lora: Positive
    full: Positive
    head: Positive
    schedule: Literal["linear", "cosine"] = "linear"


@dataclass(frozen=True)
class StopConfig:
    """When a run ends early."""

    kl: Positive | None
    reward: float | None
    window: PositiveInt
    patience: PositiveInt
    mode: Literal["any", "all"]


@dataclass(frozen=True)
class EvaluationConfig:
    """When and on how much the run is evaluated; 0 is never (in between)."""

    prompts: PositiveInt
    noises: PositiveInt
    seed: NonNegativeInt | None
    every: NonNegativeInt
    preview_every: NonNegativeInt
    weights: Literal["ema", "policy"]
    steps: PositiveInt | None
    policy_fraction: PositiveFraction
    size: Size | None
    grid: PositiveInt


@dataclass(frozen=True)
class CheckpointConfig:
    """When checkpoints are saved besides at the end, and which are kept; 0 is never."""

    every: NonNegativeInt
    minutes: NonNegative
    keep: PositiveInt | None
    keep_every: NonNegativeInt
    best: bool
    background: bool
    snapshot: bool | Literal["auto"]
    requeue: bool


@dataclass(frozen=True)
class TreeConfig:
    """Where the trajectories of a tree split."""

    splits: list[NonNegativeInt]
    noise_scale: Positive


@dataclass(frozen=True)
class GuardConfig:
    """How updates with non-finite numbers are handled."""

    non_finite: Literal["stop", "skip"]
    max_skipped: PositiveInt


@dataclass(frozen=True)
class EvalRewardsConfig:
    """Rewards that score evaluation samples besides the training reward."""

    of: list[str]
    parts: dict[str, TargetNode]


@dataclass(frozen=True)
class EvalSetsConfig:
    """Prompt sets that are evaluated besides the run's own evaluation prompts."""

    of: list[str]
    parts: dict[str, TargetNode]
    rewards: dict[str, list[str]]
    counts: dict[str, PositiveInt]


@dataclass(frozen=True)
class ScoringConfig:
    """Where and when rewards are computed."""

    background: Literal["thread", "process", "none"]
    processes: PositiveInt
    timeout: Positive | None
    device: str | None
    offload: bool
    frames: PositiveInt


@dataclass(frozen=True)
class RootConfig:
    """The root's own keys, next to the groups."""

    seed: NonNegativeInt
    iterations: PositiveInt
    prompts_per_iteration: PositiveInt
    group_size: PositiveInt
    epochs: PositiveInt
    updates_per_iteration: PositiveInt
    shares: Literal["random", "even", "groups"]
    micro_batch: PositiveInt
    sample_batch: PositiveInt
    branches: PositiveInt
    branch_at: Literal["window", "step", "tree"]
    tree: TreeConfig
    latent_storage: Literal["float32", "bfloat16", "float16"]
    tail: PositiveFraction | None
    max_grad_norm: Positive
    resample: NonNegativeInt
    max_failed: Fraction
    max_minutes: Positive | None
    target_kl: Positive | None
    learning_rate: LearningRateConfig
    stop: StopConfig
    ema: EMASchedule
    old: EMASchedule
    evaluation: EvaluationConfig
    eval_rewards: EvalRewardsConfig
    eval_sets: EvalSetsConfig
    scoring: ScoringConfig
    checkpoint: CheckpointConfig
    guard: GuardConfig
    distilled_to: PositiveInt | Literal["auto"] | None
    prompt_cache: str | None
    begin_from: str | None
    begin_as: Literal["continued", "merged"]
    reference_from: Literal["start", "base"]
    run_dir: str | None
    trust: list[str]
