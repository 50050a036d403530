"""Training items and replayed steps of the algorithms that train on sampling steps."""

from abc import abstractmethod
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from rlfactory.algo.advantage.base import Advantage
from rlfactory.algo.base import Algorithm, Loss, OldLogProbs
from rlfactory.algo.ops.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.batch import Batch, Outputs, TrainingItems
from rlfactory.dynamics.base import Dynamics, Step
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout, Transitions
from rlfactory.utils import rng
from rlfactory.utils.pytree import require, to_device
from rlfactory.utils.types import Positive

StepLosses = tuple[Tensor, dict[str, Tensor]]
"""The losses `[N]` of replayed steps, and the metrics of their ratios."""


class StepAlgorithm(Algorithm[ImageModel, TrainingItems, Batch]):
    """An algorithm that trains on sampling steps, which it replays: a loss is the mean of
    `step_losses`.

    Args:
        old_log_probs: `sampled`: as recorded while sampling. `recomputed`: by learning's own
            micro-batches before the first update. `auto`: recomputed where half precision could
            tell both apart.
    """

    requires = "transitions"

    def __init__(
        self,
        dynamics: Dynamics | None = None,
        advantage: Advantage | None = None,
        *,
        old_log_probs: OldLogProbs = "auto",
    ) -> None:
        self.dynamics = dynamics
        self.advantage = advantage
        self.old_log_probs: OldLogProbs = old_log_probs

    def training_items(
        self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int
    ) -> TrainingItems:
        return transition_items(rollout, model)

    @abstractmethod
    def step_losses(self, step: Step, log_ratio: Tensor, batch: Batch) -> StepLosses:
        """The loss of each step, with `log_ratio` `[N]` of new over old."""

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        prediction, step, log_prob = replay_step(model, batch, self.dynamics)
        log_ratio, measured = replayed_log_ratio(log_prob, batch)
        losses, metrics = self.step_losses(step, log_ratio, batch)
        metrics = {"loss/policy": losses.detach(), **metrics, **measured}
        return Loss(losses.mean(), Outputs(prediction, step), metrics)


class ClippedStepAlgorithm(StepAlgorithm):
    """A `StepAlgorithm` with PPO's clipped loss, `max(-A r, -A clip(r, 1 - c, 1 + c))`.

    Args:
        clip_range: c: clip of the ratio, whose log is a mean over dimensions.
    """

    def __init__(self, *given: Any, clip_range: Positive = 1e-4, **options: Any) -> None:
        super().__init__(*given, **options)
        self.clip_range = clip_range
        self.ratio_tolerance = clip_range / 10

    def step_losses(self, step: Step, log_ratio: Tensor, batch: Batch) -> StepLosses:
        losses, ratio = clipped_surrogate(log_ratio, batch.advantage, self.clip_range)
        return losses, ratio_metrics(ratio, self.clip_range)


def transition_items(rollout: Rollout, model: ImageModel) -> TrainingItems:
    """One training item for each transition: B samples of T transitions give B T items.

    Raises:
        ValueError: The rollout has no transitions, latents, condition or advantages.
    """
    transitions = require(rollout.transitions, "transitions")
    weight = rollout.penalty_weight
    return TrainingItems(
        x=transitions.x,
        t=transitions.t,
        x0=require(rollout.latents, "latents"),
        condition=require(rollout.condition, "a condition"),
        advantage=to_device(require(rollout.advantage, "advantages"), model.device),
        replayed=transitions,
        old_log_prob=rollout.old_log_prob,
        penalty_weight=None if weight is None else to_device(weight, model.device),
    )


def trained_steps(steps: int, fraction: float) -> int:
    """How many of a sample's transitions `subsample_transitions` takes."""
    return max(1, int(steps * fraction))


def subsample_transitions(
    rollout: Rollout, fraction: float, *, seed: int, iteration: int
) -> Transitions:
    """A random `fraction` of each sample's T transitions (DanceGRPO), at least one, in time order.

    Each sample has its own draw, keyed by its index and the iteration.
    """
    transitions = require(rollout.transitions, "transitions")
    steps = transitions.t.shape[1]
    count = trained_steps(steps, fraction)
    if count == steps:
        return transitions
    draws = rng.uniform(seed, "trained", [iteration], rollout.index.tolist(), [steps])
    columns = to_device(draws.argsort(1)[:, :count].sort(1).values, transitions.t.device)
    rows = torch.arange(len(columns), device=columns.device)[:, None]
    values: dict[str, Any] = {f.name: getattr(transitions, f.name) for f in fields(transitions)}
    chosen = {name: v[rows, columns] for name, v in values.items() if v is not None}
    return replace(transitions, **chosen)


def replay_step(model: ImageModel, batch: Batch, dynamics: Dynamics) -> tuple[Tensor, Step, Tensor]:
    """Evaluate the policy at the N states of a batch and step to where the rollout stepped.

    The step is the one that sampling used, so that before the first update the log-probabilities
    equal the stored ones.

    Returns:
        Predictions `[N, C, H, W]`, the steps, and their log-probabilities `[N]`.

    Raises:
        ValueError: The dynamics have no log-probability, or the batch no transitions.
    """
    replayed = batch.require_replayed()
    prediction = model.predict(batch.x, batch.t, batch.condition)
    step = dynamics.step(batch.x, prediction, batch.t, replayed.t_next, next=replayed.next)
    return prediction, step, require(step.log_prob, "dynamics with a log-probability")


def old_step_mean(step: Step, batch: Batch) -> Tensor:
    """The means of the steps as the behaviour policy took them.

    Where they were recomputed and are NaN, the update is on-policy, and the policy's own mean is
    the old one.

    Args:
        step: The replayed steps by the policy.
        batch: The micro-batch, of an algorithm with `stores_step_mean`.

    Returns:
        `[N, C, H, W]`, without gradient.

    Raises:
        ValueError: The rollout stored no means.
    """
    mean = require(batch.require_replayed().mean, "the means of the sampling policy's steps")
    if batch.old_log_prob is None:
        return mean
    return torch.where(mean.isnan(), step.mean.detach(), mean)


def replayed_log_ratio(log_prob: Tensor, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-ratio of replayed steps, new over old.

    Args:
        log_prob: Log-probabilities by the policy, `[N]` with gradient.
        batch: The micro-batch. Where `old_log_prob` is set it is compared with; NaN there means an
            on-policy update, whose ratio is 1 by construction: `log_prob` itself is the old one.

    Returns:
        `[N]`; and, of recomputed log-probabilities, the metric `ratio/sampled_max_dev`: how far the
        behaviour policy's likelihood in learning's precision and micro-batches is off the one that
        was recorded while sampling, `|p_recomputed / p_sampled - 1|`, `[N]`.
    """
    sampled = batch.require_replayed().log_prob
    if batch.old_log_prob is None:
        return log_prob - sampled, {}
    old = torch.where(batch.old_log_prob.isnan(), log_prob.detach(), batch.old_log_prob)
    return log_prob - old, {"ratio/sampled_max_dev": ((old - sampled).exp() - 1).abs()}
