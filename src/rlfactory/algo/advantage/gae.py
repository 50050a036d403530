"""Advantages of tokens: rewards of tokens, GAE (arXiv 1506.02438) and whitening.

Tensors are `[B, G]`, a row for each response. A mask is true on the tokens of a response, which
start at position 0 without a gap; values outside the mask, even NaN, have no effect. The value at
position t is that of the state before token t. All arithmetic is in float32, since sums of squares
overflow float16.
"""

import torch
from torch import Tensor


@torch.no_grad()
def gae(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimation, `A_t = sum_k (gamma lam)^k delta_{t+k}` (eq. 16).

    `delta_t = r_t + gamma V_{t+1} - V_t`, with V = 0 after a response's last token.

    Args:
        rewards: Reward of each token, `[B, G]`.
        values: V of the state before each token, `[B, G]`.
        mask: True on response tokens, `[B, G]`.
        gamma: Discount.
        lam: Lambda; 0 gives the one-step TD error, 1 the return minus the value.

    Returns:
        Advantages `[B, G]` float32, 0 outside the mask.
    """
    rewards, values = (x.float().masked_fill(~mask, 0.0) for x in (rewards, values))
    advantages = torch.zeros_like(values)
    next_advantage = next_value = values.new_zeros(len(values))
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        next_advantage = delta + gamma * lam * next_advantage
        next_value = values[:, t]
        advantages[:, t] = next_advantage
    return advantages


def terminal_rewards(scores: Tensor, mask: Tensor) -> Tensor:
    """Put each of `scores` `[B]` on the last token of its response: `[B, G]` float32, else 0.

    The score of an empty response is dropped.
    """
    last = mask.sum(1, keepdim=True) - 1
    is_last = torch.arange(mask.shape[1], device=mask.device) == last
    return torch.where(is_last, scores.float()[:, None], 0.0)


def uniform_rewards(scores: Tensor, mask: Tensor) -> Tensor:
    """Spread each of `scores` `[B]` evenly over its response: `[B, G]` float32, sums as `scores`.

    The score of an empty response is dropped.
    """
    share = scores.float() / mask.sum(1).clamp(min=1)
    return torch.where(mask, share[:, None], 0.0)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of `x` `[B, G]` where `mask` is true, a scalar; 0 for an empty mask."""
    return x.float().masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def masked_variance(x: Tensor, mask: Tensor, *, unbiased: bool = False) -> Tensor:
    """Variance of `x` `[B, G]` where `mask` is true, a scalar; 0 for one token or none."""
    squares = (x.float() - masked_mean(x, mask)).square().masked_fill(~mask, 0.0).sum()
    return squares / (mask.sum() - int(unbiased)).clamp(min=1)


def whiten(
    x: Tensor, mask: Tensor, *, shift_mean: bool = True, unbiased: bool = False, eps: float = 1e-8
) -> Tensor:
    """`(x - mean) / sqrt(variance + eps)`, plus the mean again unless `shift_mean`.

    OpenAI's code has no mask and the population variance, TRL's has the `unbiased` one.

    Args:
        x: `[B, G]`.
        mask: True on the values that count, `[B, G]`.
        shift_mean: Whether the result has mean 0 instead of the mean of `x`.
        unbiased: Whether the variance is divided by n - 1 instead of n.
        eps: Added to the variance.

    Returns:
        `[B, G]` float32, 0 outside the mask.
    """
    x = x.float()
    # The maximum is subtracted first, so that constant input becomes exactly 0: the mean of equal
    # floats is rounded, and the error divided by sqrt(eps) would be large.
    x_max = x.masked_fill(~mask, -torch.inf).amax()
    centred = x - x_max
    centred = centred - masked_mean(centred, mask)
    variance = masked_variance(centred, mask, unbiased=unbiased)
    whitened = centred * torch.rsqrt(variance + eps)
    if not shift_mean:
        whitened = whitened + masked_mean(x, mask)
    return whitened.masked_fill(~mask, 0.0)
