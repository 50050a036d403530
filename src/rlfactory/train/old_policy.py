"""Likelihoods by the policy before it moves, which the ratios of later updates compare with."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from rlfactory.algo.ops.old_log_probs import (
    must_recompute,
    sample_log_ratios,
    with_old_log_probs,
)
from rlfactory.algo.ops.old_token_log_probs import (
    must_recompute_tokens,
    with_old_token_log_probs,
)
from rlfactory.batch import TokenBatch
from rlfactory.model.weight_sets import POLICY
from rlfactory.rollout import Rollout
from rlfactory.train.data_parallel import global_rollout, local_row_numbers
from rlfactory.train.guards.failure_dump import UpdatePosition
from rlfactory.train.update_batches import Items, UpdateBatches


def with_old_log_likelihoods(batches: UpdateBatches, rollout: Rollout, iteration: int) -> Rollout:
    """The rollout with the log-likelihoods of its samples by the policy before any update.

    Only ratios need them. Where sampling and training use the same weights the first update is
    on-policy, with a ratio of 1 by construction, and an algorithm may skip its samples.
    """
    algo = batches.components.algo
    model: Any = batches.components.model  # of images or texts, as the algorithm
    minibatches = batches.minibatches(global_rollout(rollout), iteration, 0)
    local = [local_row_numbers(rollout, rows) for rows in minibatches if len(rows)]
    if not _needs_likelihoods(batches, rollout, local):
        return rollout
    position = UpdatePosition(iteration, 0)
    if first_is_on_policy(batches):
        local = local[1:]
    if algo.requires == "tokens":
        return with_old_token_log_probs(
            model,
            algo.dynamics,
            rollout,
            local,
            lambda samples: batches.padded(batches.items(samples, position), samples, position),
        )
    return with_old_log_probs(
        algo,
        model,
        rollout,
        local,
        lambda items, samples: batches.padded(items, samples, position),
        seed=batches.budget.seed,
        iteration=iteration,
    )


def first_is_on_policy(batches: UpdateBatches) -> bool:
    """Whether an iteration's first update needs no old log-likelihoods: its ratio is 1."""
    algo = batches.components.algo
    return algo.skip_old_log_probs and algo.behaviour == POLICY and batches.budget.epochs == 1


def with_sample_ratios(
    batches: UpdateBatches, items: Items | None, samples: Rollout, position: UpdatePosition
) -> Items | None:
    """The items with the ratios of whole samples, where micro-batches divide samples.

    It takes a forward pass more of each item, but in an on-policy update.
    """
    algo, hardware = batches.components.algo, batches.components.hardware
    if not algo.one_ratio_per_sample or isinstance(items, TokenBatch):
        return items
    if position.update == 0 and first_is_on_policy(batches):
        return items
    divided = items is not None and items.is_divided_by(batches.budget.micro_batch)
    # a rank without samples takes part in the passes of the others
    if not hardware.any_rank(divided and samples.old_log_prob is not None):
        return items
    model: Any = batches.components.model  # of images: texts have one item a sample
    ratios = sample_log_ratios(algo, model, batches.padded(items, samples, position))
    return None if items is None else replace(items, sample_log_ratio=ratios)


def _needs_likelihoods(
    batches: UpdateBatches, rollout: Rollout, minibatches: Sequence[Tensor]
) -> bool:
    """Whether old log-likelihoods are computed, the same on all ranks."""
    algo, precision = batches.components.algo, batches.components.model.precision
    if algo.requires == "tokens":
        return must_recompute_tokens(algo.old_log_probs, precision)
    if algo.has_surrogate_likelihood or algo.requires != "transitions":
        return algo.has_surrogate_likelihood
    differ = must_recompute(algo, precision, rollout, minibatches, batches.budget.micro_batch)
    # ranks may have other numbers of samples, and all take part in the passes
    return batches.components.hardware.any_rank(differ)
