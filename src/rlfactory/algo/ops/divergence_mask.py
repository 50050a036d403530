"""Which tokens a trust region of probabilities leaves in the loss: DPPO, and CPPO along a prefix.

A binary divergence is that of the drawn token against all others. M is the number of real tokens.
"""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.rollout import Tokens

Divergence = Literal["tv", "kl"]


def binary_divergence(log_prob: Tensor, old_log_prob: Tensor, kind: Divergence) -> Tensor:
    """D of a token between `q`, the old policy, and `p`, in the shape of both.

        tv  |p - q|                                                (DPPO, arXiv 2602.04879)
        kl  q log(q / p) + (1 - q) log((1 - q) / (1 - p))          (the same)

    1 - q and 1 - p are 1e-8 larger, as verl has them, so that a certain token has a finite D.
    """
    prob, old = log_prob.exp(), old_log_prob.exp()
    if kind == "tv":
        return (prob - old).abs()
    others = (1 - old) * torch.log((1 - old + 1e-8) / (1 - prob + 1e-8))
    return old * (old_log_prob - log_prob) + others


def exceeds_prefix_budget(
    divergence: Tensor, limit: Tensor, tokens: Tokens, *, last_weight: float, budget: float
) -> Tensor:
    """Whether a token is beyond CPPO's limits (arXiv 2606.10968, eq. 8-11), `[M]` bool.

    With D_t the divergence and w_t falling linearly from 1 to `last_weight` over a response,
    w_t D_t may be at most the limit, and its sum up to here at most the limit plus b times the sum
    of w before here. b is the response's 90 % quantile of D, kept between `budget` and twice that
    (eq. 22).

    Args:
        divergence: D, `[M]`.
        limit: `[M]`.
        tokens: The responses.
        last_weight: w of a response's last token.
        budget: The least b.
    """
    mask, padded = tokens.mask, tokens.pad(divergence)
    position = torch.arange(mask.shape[1], device=mask.device)
    last = (mask.sum(1, keepdim=True) - 1).clamp(min=1)
    weight = 1 - (1 - last_weight) * position / last
    used = weight * padded
    rate = padded.masked_fill(~mask, torch.nan).nanquantile(0.9, 1, keepdim=True)
    rate = rate.clamp(budget, 2 * budget)
    spared = rate * (weight.cumsum(1) - weight) - (used.cumsum(1) - used)
    return tokens.real(used - spared.clamp(max=0)) > limit
