"""Autoregressive sampling: one token a step for all unfinished rows at once, on a KV cache."""

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
"""After how many tokens it is checked which responses have ended: a check waits for the device,
and without it up to so many tokens less one are drawn in vain.
"""
SHRINK_AT = 0.75
"""The share of unfinished rows at which the finished ones leave the batch: that copies the cache
of the others.
"""


@torch.no_grad()
def decode(
    read: Read,
    keep: Callable[[Tensor], None],
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
        keep: reduces the KV cache to the rows of ascending indices `[b]`: finished rows leave the
            batch, and the loop ends when all have.
        prompt: token ids `[B, P]`, padded on the left; `prompt_mask` marks the real ones.
        uniform: the random numbers `[B, G]` by which tokens are drawn; G is the maximal length.
        stop: ids of the tokens that end a response. A finished row is padded with `pad`.
    """
    (count, width), most = prompt.shape, uniform.shape[1]
    log_prob, value = torch.zeros_like(uniform), torch.zeros_like(uniform)
    response = torch.full(uniform.shape, pad, device=prompt.device)
    mask = torch.zeros(uniform.shape, dtype=torch.bool, device=prompt.device)
    all_ended = torch.zeros(count, dtype=torch.bool, device=prompt.device)
    check_every = CHECK_EVERY.get(prompt.device.type, CHECK_EVERY["cuda"])
    # of the rows in the batch. Finished ones still run, on padding, until they leave it
    rows, ids, ended = torch.arange(count, device=prompt.device), prompt, all_ended.clone()
    attention, noise = torch.cat([prompt_mask, torch.ones_like(mask)], dim=1), uniform
    positions = positions_of(attention)
    for t in range(most):
        length = width + t
        logits, values = read(
            ids, attention[:, :length], positions[:, length - ids.shape[1] : length]
        )
        step = dynamics.step(logits, noise=noise[:, t])
        mask[rows, t] = ~ended
        response[rows, t] = torch.where(ended, pad, step.next)
        log_prob[rows, t] = step.log_prob.masked_fill(ended, 0.0)
        value[rows, t] = values.masked_fill(ended, 0.0)
        ids = step.next[:, None]
        if t < dynamics.stop_after:
            continue
        ended = ended | (step.next[:, None] == stop).any(1)
        if (t + 1) % check_every or t + 1 == most:
            continue
        running = (~ended).nonzero()[:, 0]
        if not len(running):
            break
        if len(running) <= SHRINK_AT * len(ended):
            all_ended[rows] = ended
            keep(running)
            rows, ids, ended, attention, noise, positions = (
                tensor[running] for tensor in (rows, ids, ended, attention, noise, positions)
            )
    all_ended[rows] = ended
    return Tokens(prompt, prompt_mask, response, mask, all_ended, log_prob, value)


def positions_of(mask: Tensor) -> Tensor:
    """Position ids `[B, L]` of the tokens that `mask` marks as real, counted from 0."""
    return (mask.long().cumsum(1) - 1).clamp(min=0)
