"""From rewards and values on tokens to advantages (GAE, arXiv 1506.02438).

The value at position t is that of the state before token t. Masks `[B, G]` are true on the tokens
of a response, from position 0 without a gap; what lies outside, even NaN, does not matter.
"""

import torch
from torch import Tensor


@torch.no_grad()
def gae(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Sum over k of `(gamma lam)^k delta_{t+k}`, `[B, G]` float32, 0 outside the mask (eq. 16).

    `delta_t = r_t + gamma V_{t+1} - V_t`, with V = 0 after the last token: a response ends there.
    """
    rewards, values = (x.float().masked_fill(~mask, 0.0) for x in (rewards, values))
    advantages = torch.zeros_like(values)
    following = next_value = values.new_zeros(len(values))
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        following = delta + gamma * lam * following
        next_value = values[:, t]
        advantages[:, t] = following
    return advantages


def terminal_rewards(scores: Tensor, mask: Tensor) -> Tensor:
    """Each of `scores` `[B]` on the last token of its response, `[B, G]` float32, 0 elsewhere.

    An empty response gets none.
    """
    last = mask.sum(1, keepdim=True) - 1
    at_last = torch.arange(mask.shape[1], device=mask.device) == last
    return torch.where(at_last, scores.float()[:, None], 0.0)
