"""The decode loop: one token a step for all rows at once, on a key-value cache."""

from collections.abc import Callable

import torch
from torch import Tensor

from rlfactory.dynamics.token import Token
from rlfactory.rollout import Tokens

Read = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Token ids `[B, n]`, the mask of all so far `[B, m]` and positions `[B, n]` to the last one's
logits `[B, V]` and value `[B]`; keeps the cache.
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
    """Responses to left-padded prompts `[B, P]`, drawn with `uniform` `[B, G]`.

    Log-probabilities and values come out of the decode itself. A row that has met one of the
    tokens `stop` is padded; the loop ends with the last row.
    """
    count, width = prompt.shape
    log_prob, value = torch.zeros_like(uniform), torch.zeros_like(uniform)
    response = torch.full(uniform.shape, pad, device=prompt.device)
    mask = torch.zeros(uniform.shape, dtype=torch.bool, device=prompt.device)
    seen = torch.cat([prompt_mask, torch.ones_like(mask)], dim=1)
    positions = positions_of(seen)
    ended, ids = torch.zeros(count, dtype=torch.bool, device=prompt.device), prompt
    for t in range(uniform.shape[1]):
        known = width + t
        logits, values = read(ids, seen[:, :known], positions[:, known - ids.shape[1] : known])
        step = dynamics.step(logits, noise=uniform[:, t])
        mask[:, t] = ~ended
        response[:, t] = torch.where(ended, pad, step.next)
        log_prob[:, t] = step.log_prob.masked_fill(ended, 0.0)
        value[:, t] = values.masked_fill(ended, 0.0)
        if t >= dynamics.stop_after:
            ended |= torch.isin(step.next, stop)
            if ended.all():
                break
        ids = step.next[:, None]
    return Tokens(prompt, prompt_mask, response, mask, ended, log_prob, value)


def positions_of(mask: Tensor) -> Tensor:
    """The places `[B, L]` of the tokens that `mask` says are real, counted from 0."""
    return (mask.long().cumsum(1) - 1).clamp(min=0)
