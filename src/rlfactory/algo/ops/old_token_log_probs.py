"""Old log-probabilities of tokens, recomputed before the first update, and ratios against them.

In half precision a token's likelihood in a pass over a whole text differs from the one that it was
drawn with, by a pass over one token on a cache: sums are rounded in another order. A bfloat16 logit
of 20 has steps of 0.125.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rlfactory.algo.base import OldLogProbs
from rlfactory.batch import TokenBatch
from rlfactory.dynamics.token import Token
from rlfactory.model.precision import Precision
from rlfactory.model.text_base import TextModel
from rlfactory.model.weight_sets import POLICY
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require, to_device

MakePasses = Callable[[Rollout], tuple[TokenBatch | None, Iterator[tuple[TokenBatch, bool]]]]
"""Divides samples into the micro-batches that learning will have; padding has `False`."""


def must_recompute_tokens(old_log_probs: OldLogProbs, precision: Precision) -> bool:
    """Whether the likelihoods of drawn tokens are computed again before the first update."""
    if old_log_probs != "auto":
        return old_log_probs == "recomputed"
    return not precision.replays_exactly


@torch.no_grad()
def with_old_token_log_probs(
    model: TextModel,
    dynamics: Token,
    rollout: Rollout,
    minibatches: Sequence[Tensor],
    make_passes: MakePasses,
    gather: Callable[[Tensor], Tensor],
) -> Rollout:
    """The rollout with `old_log_prob` `[B, G]`, computed in the micro-batches of learning.

    Args:
        rollout: This rank's samples, with advantages.
        minibatches: Row numbers of the samples to evaluate, by update; the others get NaN.
        make_passes: Makes the micro-batches.
        make_passes: Makes the micro-batches.
        gather: The values of all ranks' passes, where those of a minibatch are divided among them.
    """

    old = torch.full_like(require(rollout.tokens, "tokens").log_prob, torch.nan)
    # with sharded parameters it is a collective of all ranks
    with model.weights(POLICY):
        for rows in minibatches:
            found = []
            for batch, counts in make_passes(rollout[rows])[1]:
                tokens = batch.tokens
                log_prob, _ = model.token_log_probs(tokens, dynamics)
                # padding is evaluated too: other ranks wait for its pass
                part = old.new_full((len(batch) if counts else 0, old.shape[1]), torch.nan)
                if counts:
                    part[:, : tokens.mask.shape[1]] = tokens.pad(log_prob)
                found.append(part)
            if len(rows):
                old[to_device(rows, old.device)] = gather(torch.cat(found))
    return replace(rollout, old_log_prob=old)


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
