"""Ratios of tokens against their log-probabilities as sampled, or as recomputed afterwards."""

import torch
from torch import Tensor

from rlfactory.batch import TokenBatch


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
