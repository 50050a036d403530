"""Old log-likelihoods, computed before the first update, and log-ratios against them.

Of the forward-process algorithms they are those of a surrogate. Of algorithms that replay sampling
steps or tokens they replace the log-probabilities recorded while sampling, in half precision: sums
are rounded in another order in batches of another size, and in a pass over one token on a cache (a
bfloat16 logit of 20 has steps of 0.125), and then the first ratios would not be 1.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlfactory.algo.base import Algorithm
from rlfactory.algo.ops.step_replay import replay_step, trained_steps
from rlfactory.batch import Batch, TokenBatch, TrainingItems
from rlfactory.model.base import ImageModel
from rlfactory.model.precision import Precision
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require, to_device

MakePasses = Callable[
    [Rollout], tuple[TrainingItems | TokenBatch | None, Iterator[tuple[Any, bool]]]
]
"""Makes the training items of samples, None of no samples, and divides them into the micro-batches
that learning will have; padding, which sharded networks need, has `False`."""


def must_recompute(
    algo: Algorithm[Any, Any, Any],
    precision: Precision,
    rollout: Rollout,
    minibatches: Sequence[Tensor],
    micro_batch: int,
) -> bool:
    """Whether log-probabilities as sampled are computed again before the first update.

    Reads from the device which batches steps were drawn in, if that decides.

    Args:
        algo: An algorithm that replays steps or tokens.
        precision: The model's.
        rollout: This rank's samples.
        minibatches: Their rows in each update of the first epoch.
        micro_batch: Items in one forward pass of learning.
    """
    if algo.old_log_probs != "auto":
        return algo.old_log_probs == "recomputed"
    if precision.replays_exactly:
        return False
    drawn = None if rollout.transitions is None else rollout.transitions.pass_rows
    if drawn is None or precision.rollout != precision.learning:
        return True
    each = trained_steps(drawn.shape[1], algo.step_fraction)
    counts = [len(rows) * each for rows in minibatches if len(rows)]
    learned = {min(n, micro_batch) for n in counts}
    learned |= {n % micro_batch for n in counts if n % micro_batch}
    return len(learned | {*drawn.flatten().tolist()}) > 1


@torch.no_grad()
def with_old_log_probs(
    algo: Algorithm[Any, Any, Any],
    model: Any,
    rollout: Rollout,
    minibatches: Sequence[Tensor],
    make_passes: MakePasses,
    gather: Callable[[Tensor], Tensor],
) -> Rollout:
    """Compute the behaviour policy's log-likelihoods before the first update moves the policy.

    The items and micro-batches are those that learning will see, since noise depends on random
    keys alone; so in the first epoch sums are added in the same order.

    Args:
        algo: An algorithm with a surrogate likelihood, or one that replays steps or tokens.
        model: The model.
        rollout: B samples of this rank.
        minibatches: Row numbers of the samples to evaluate, by update; the others have NaN.
        make_passes: Makes the micro-batches.
        gather: The values of all ranks' passes, where those of a minibatch are divided among them.

    Returns:
        The rollout with `old_log_prob` `[B, T]` or `[B, G]` and, where the algorithm stores them,
        recomputed means of steps; unchanged if no surrogate likelihood was evaluated.
    """
    old, mean, steps = None, None, rollout.transitions
    if rollout.tokens is not None:
        old = torch.full_like(rollout.tokens.log_prob, torch.nan)
    elif not algo.has_surrogate_likelihood:
        steps = require(steps, "transitions")
        count = trained_steps(steps.t.shape[1], algo.step_fraction)
        old = steps.log_prob.new_full((len(rollout), count), torch.nan)
        mean = None if steps.mean is None else torch.full_like(steps.mean, torch.nan)
        rollout = replace(rollout, transitions=replace(steps, mean=mean))
    # entered even without samples: with sharded parameters it is a collective of all ranks
    with model.weights(algo.behaviour):
        for rows in minibatches:
            items, passes = make_passes(rollout[rows])
            # padding is evaluated too: the other ranks wait for its forward pass
            found = [_evaluate(algo, model, batch, counts, old) for batch, counts in passes]
            if items is None:
                continue
            columns = [gather(torch.cat(column)) for column in zip(*found, strict=True)]
            if isinstance(items, TrainingItems):
                columns = [items.as_rows(column) for column in columns]
            if old is None:
                old = columns[0].new_full((len(rollout), columns[0].shape[1]), torch.nan)
            for whole, column in zip((old, mean), columns, strict=False):
                if whole is not None:
                    whole[to_device(rows, whole.device)] = column
    return replace(rollout, old_log_prob=old)


def _evaluate(
    algo: Algorithm[Any, Any, Any], model: Any, batch: Any, counts: bool, old: Tensor | None
) -> tuple[Tensor, ...]:
    """Log-likelihoods `[N]`, of texts as wide as `old`; of a replayed step also its mean, if the
    algorithm stores that. No rows of a batch that does not count.
    """
    rows = slice(None if counts else 0)
    if algo.has_surrogate_likelihood:
        return (algo.log_likelihoods(model, batch)[rows],)
    dynamics = require(algo.dynamics, "dynamics")
    if isinstance(batch, TokenBatch):
        log_prob, _ = model.token_log_probs(batch.tokens, dynamics)
        width = require(old, "tokens").shape[1] - batch.tokens.mask.shape[1]
        return (pad(batch.tokens.pad(log_prob), (0, width), value=torch.nan)[rows],)
    _, step, log_prob = replay_step(model, batch, dynamics)
    return (log_prob[rows], step.mean[rows]) if algo.stores_step_mean else (log_prob[rows],)


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


def token_log_ratio(log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-ratio of drawn tokens, new over old.

    Args:
        log_prob: Log-probabilities by the policy, `[M]` with gradient.
        batch: The micro-batch.

    Returns:
        `[M]`; and, of recomputed log-probabilities, the metric `ratio/sampled_max_dev`: how far
        they are off those of sampling, `|p_recomputed / p_sampled - 1|`, `[M]`.
    """
    sampled = batch.tokens.real(batch.tokens.log_prob)
    if batch.old_log_prob is None:
        return log_prob - sampled, {}
    old = batch.tokens.real(batch.old_log_prob)
    old = torch.where(old.isnan(), log_prob.detach(), old)
    return log_prob - old, {"ratio/sampled_max_dev": ((old - sampled).exp() - 1).abs()}
