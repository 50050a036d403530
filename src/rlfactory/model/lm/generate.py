"""Autoregressive sampling: one token a step for all rows at once, on a KV cache."""

from collections.abc import Callable

import torch
from torch import Tensor

from rlfactory.dynamics.token import Token
from rlfactory.rollout import Tokens

Read = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Runs the network on new tokens: ids `[B, n]`, the attention mask `[B, m]` of all tokens so far
and positions `[B, n]`. Returns the last token's logits `[B, V]` and value `[B]`, and extends its
KV cache.
"""
CHECK_EVERY = {"cpu": 1, "cuda": 8}
"""After how many tokens it is checked whether all responses have ended: a check waits for the
device, and without it up to so many tokens less one are drawn in vain.
"""


@torch.no_grad()
def decode(
    read: Read,
    prompt: Tensor,
    prompt_mask: Tensor,
    dynamics: Token,
    uniform: Tensor,
    *,
    stop: Tensor,
    pad: int,
) -> Tokens:
    """Sample responses to prompts; log-probabilities and values come from the same passes.

    Args:
        prompt: token ids `[B, P]`, padded on the left; `prompt_mask` marks the real ones.
        uniform: the random numbers `[B, G]` by which tokens are drawn; G is the maximal length.
        stop: ids of the tokens that end a response. A finished row is padded with `pad`; the loop
            ends when all rows are finished.
    """
    count, width = prompt.shape
    log_prob, value = torch.zeros_like(uniform), torch.zeros_like(uniform)
    response = torch.full(uniform.shape, pad, device=prompt.device)
    mask = torch.zeros(uniform.shape, dtype=torch.bool, device=prompt.device)
    # finished rows still run, on padding; their results are masked below
    attention = torch.cat([prompt_mask, torch.ones_like(mask)], dim=1)
    positions = positions_of(attention)
    ended, ids = torch.zeros(count, dtype=torch.bool, device=prompt.device), prompt
    check_every = CHECK_EVERY.get(prompt.device.type, CHECK_EVERY["cuda"])
    for t in range(uniform.shape[1]):
        length = width + t
        logits, values = read(
            ids, attention[:, :length], positions[:, length - ids.shape[1] : length]
        )
        step = dynamics.step(logits, noise=uniform[:, t])
        mask[:, t] = ~ended
        response[:, t] = torch.where(ended, pad, step.next)
        log_prob[:, t] = step.log_prob.masked_fill(ended, 0.0)
        value[:, t] = values.masked_fill(ended, 0.0)
        if t >= dynamics.stop_after:
            ended = ended | (step.next[:, None] == stop).any(1)
            if (t + 1) % check_every == 0 and bool(ended.all()):
                break
        ids = step.next[:, None]
    return Tokens(prompt, prompt_mask, response, mask, ended, log_prob, value)


def positions_of(mask: Tensor) -> Tensor:
    """Position ids `[B, L]` of the tokens that `mask` marks as real, counted from 0."""
    return (mask.long().cumsum(1) - 1).clamp(min=0)
