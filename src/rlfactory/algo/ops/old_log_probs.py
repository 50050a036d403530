"""Old log-likelihoods, computed before the first update, and the log-ratio against them.

Of the forward-process algorithms they are those of a surrogate. Of algorithms that replay sampling
steps they replace the log-probabilities recorded while sampling, in half precision: a GPU may sum
in another order in batches of another size, and then the first ratios would not be 1.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlfactory.algo.base import Algorithm
from rlfactory.algo.ops.step_replay import replay_step, trained_steps
from rlfactory.batch import Batch, TrainingItems
from rlfactory.model.base import ImageModel
from rlfactory.model.precision import Precision
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require, to_device

MakePasses = Callable[[Rollout], tuple[TrainingItems | None, Iterator[tuple[Batch, bool]]]]
"""Makes the training items of samples, None of no samples, and divides them into the micro-batches
that learning will have; padding, which sharded networks need, has `False`."""


def must_recompute(
    algo: Algorithm[Any, Any, Any],
    precision: Precision,
    rollout: Rollout,
    minibatches: Sequence[Tensor],
    micro_batch: int,
) -> bool:
    """Whether the log-probabilities of sampled steps are recomputed before the first update.

    Reads from the device which batches the steps were drawn in, if that decides.

    Args:
        algo: Any algorithm; False of one that replays no steps.
        precision: The model's.
        rollout: This rank's samples.
        minibatches: Their rows in each update of the first epoch.
        micro_batch: Items in one forward pass of learning.
    """
    if rollout.transitions is None or algo.requires != "transitions":
        return False
    if algo.old_log_probs != "auto":
        return algo.old_log_probs == "recomputed"
    if precision.rollout != precision.learning:
        return True
    if precision.learning == torch.float32:
        return False
    drawn = rollout.transitions.pass_rows
    if drawn is None:
        return True
    each = trained_steps(drawn.shape[1], algo.step_fraction)
    counts = [len(rows) * each for rows in minibatches if len(rows)]
    learned = {min(n, micro_batch) for n in counts}
    learned |= {n % micro_batch for n in counts if n % micro_batch}
    return len(learned | {*drawn.flatten().tolist()}) > 1


@torch.no_grad()
def with_old_log_probs(
    algo: Algorithm[Any, Any, Any],
    model: ImageModel,
    rollout: Rollout,
    minibatches: Sequence[Tensor],
    make_passes: MakePasses,
    gather: Callable[[Tensor], Tensor],
) -> Rollout:
    """Compute the behaviour policy's log-likelihoods before the first update moves the policy.

    The items and micro-batches are those that learning will see, since noise depends on random
    keys alone; so in the first epoch sums are added in the same order.

    Args:
        algo: An algorithm with a surrogate likelihood, or one that replays steps.
        model: The model.
        rollout: B samples of this rank.
        minibatches: Row numbers of the samples to evaluate, by update; the others keep NaN.
        make_passes: Makes the micro-batches.
        gather: The values of all ranks' passes, where those of a minibatch are divided among them.

    Returns:
        The rollout with `old_log_prob` `[B, T]` and, where the algorithm stores them, recomputed
        means of steps; unchanged if no surrogate likelihood was evaluated.
    """
    evaluated: list[tuple[Tensor, Tensor, Tensor | None]] = []
    # entered even without samples: with sharded parameters it is a collective of all ranks
    with model.weights(algo.behaviour):
        for rows in minibatches:
            items, passes = make_passes(rollout[rows])
            # padding is evaluated too: the other ranks wait for its forward pass
            found = [_evaluate(algo, model, batch, counts) for batch, counts in passes]
            if items is not None:
                evaluated.append((rows, *_joined(found, items, gather)))
    if algo.has_surrogate_likelihood:
        return _with_surrogates(rollout, evaluated)
    return _with_steps(rollout, evaluated, algo.step_fraction)


Evaluated = Sequence[tuple[Tensor, Tensor, Tensor | None]]
"""Of each minibatch the rows, the log-likelihoods `[rows, T]` and the means of the steps."""


def _evaluate(
    algo: Algorithm[Any, Any, Any], model: ImageModel, batch: Batch, counts: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-likelihoods `[N]`; of a replayed step also its mean, if the algorithm stores that. No
    rows of a batch that does not count.
    """
    rows = slice(None if counts else 0)
    if algo.has_surrogate_likelihood:
        return algo.log_likelihoods(model, batch)[rows], None
    _, step, log_prob = replay_step(model, batch, require(algo.dynamics, "dynamics"))
    return log_prob[rows], step.mean[rows] if algo.stores_step_mean else None


def _joined(
    found: Sequence[tuple[Tensor, Tensor | None]],
    items: TrainingItems,
    gather: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor | None]:
    """The values of several micro-batches as `[samples, T, ...]`."""
    log_probs = items.as_rows(gather(torch.cat([values for values, _ in found])))
    means = [mean for _, mean in found if mean is not None]
    return log_probs, items.as_rows(gather(torch.cat(means))) if means else None


def _with_surrogates(rollout: Rollout, evaluated: Evaluated) -> Rollout:
    if not evaluated:
        return rollout
    first = evaluated[0][1]
    old = first.new_full((len(rollout), first.shape[1]), torch.nan)
    for rows, log_probs, _ in evaluated:
        old[to_device(rows, old.device)] = log_probs
    return replace(rollout, old_log_prob=old)


def _with_steps(rollout: Rollout, evaluated: Evaluated, fraction: float) -> Rollout:
    """Log-probabilities and means of steps; NaN where none are needed, rather than the sampled."""
    transitions = require(rollout.transitions, "transitions")
    steps = trained_steps(transitions.t.shape[1], fraction)
    old = transitions.log_prob.new_full((len(rollout), steps), torch.nan)
    mean = None if transitions.mean is None else torch.full_like(transitions.mean, torch.nan)
    for rows, log_probs, means in evaluated:
        index = to_device(rows, old.device)
        old[index] = log_probs
        if mean is not None and means is not None:
            mean[index] = means
    return replace(rollout, old_log_prob=old, transitions=replace(transitions, mean=mean))


@torch.no_grad()
def sample_log_ratios(
    algo: Algorithm[Any, Any, Any],
    model: ImageModel,
    passes: Iterator[tuple[Batch, bool]],
    gather: Callable[[Tensor], Tensor],
) -> Tensor:
    """Log-ratios of whole samples, for micro-batches that hold only some of a sample's items.

    Args:
        algo: An algorithm with one ratio for each sample.
        model: The model, with the policy's weights in use.
        passes: The micro-batches of all items; padding has `False`.
        gather: As in `with_old_log_probs`.

    Returns:
        The mean over each sample's items, `[B]`; empty without items.
    """
    ratios, count = [], 1
    for batch, counts in passes:
        likelihoods = algo.log_likelihoods(model, batch)
        ratios.append(log_ratio(likelihoods, batch.old_log_prob)[: None if counts else 0])
        count = batch.items_per_sample
    return gather(torch.cat(ratios)).view(-1, count).mean(1) if ratios else torch.empty(0)


def log_ratio(log_probs: Tensor, old: Tensor | None) -> Tensor:
    """`log p - log p_old`, with the gradient of `log p`.

    Args:
        log_probs: `[N]`.
        old: `[N]`; NaN for items of an on-policy update, None if all are. Their ratio is 1 by
            construction, so the detached `log_probs` stand in, and the result is exactly 0.

    Returns:
        `[N]`.
    """
    current = log_probs.detach()
    if old is None:
        return log_probs - current
    return log_probs - torch.where(old.isnan(), current, old)
