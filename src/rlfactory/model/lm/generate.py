"""Autoregressive sampling: one token a step for all unfinished rows at once, on a KV cache."""

from collections.abc import Callable

import torch
from torch import Tensor

from rlfactory.dynamics.token import Token
from rlfactory.model.lm.stop_texts import StopTexts
from rlfactory.rollout import Tokens

Read = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Runs the network on new tokens: ids `[B, n]`, the attention mask `[B, m]` of all tokens so far
and positions `[B, n]`. Returns the last token's logits `[B, V]` and what the critic reads of it,
`[B, ...]`, and extends its KV cache.
"""
VALUES_AT_ONCE = 16
"""Tokens of a row whose values are computed together: the critic's products are then larger."""
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
    stop_texts: StopTexts | None = None,
    critic: Callable[[Tensor], Tensor] = lambda states: states,
) -> Tokens:
    """Sample responses to prompts; log-probabilities and values come from the same passes.

    Args:
        keep: reduces the KV cache to the rows of ascending indices `[b]`: finished rows leave the
            batch, and the loop ends when all have.
        prompt: token ids `[B, P]`, padded on the left; `prompt_mask` marks the real ones.
        uniform: the random numbers `[B, G]` by which tokens are drawn; G is the maximal length.
        stop: ids of the tokens that end a response. A finished row is padded with `pad`.
        stop_texts: texts that end one too; the host then waits for each token.
        critic: values `[n, B]` of n tokens each, from what `read` returned of them, stacked.
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
    positions, states = positions_of(attention), list[Tensor]()

    def write_values(end: int) -> None:
        """Of the tokens since the last call, which end before column `end`."""
        if not states:
            return
        columns = slice(end - len(states), end)
        value[rows, columns] = critic(torch.stack(states)).T * mask[rows, columns]
        states.clear()

    for t in range(most):
        length = width + t
        logits, state = read(
            ids, attention[:, :length], positions[:, length - ids.shape[1] : length]
        )
        step = dynamics.step(logits, noise=noise[:, t])
        mask[rows, t] = ~ended
        response[rows, t] = torch.where(ended, pad, step.next)
        log_prob[rows, t] = step.log_prob.masked_fill(ended, 0.0)
        states.append(state)
        if len(states) == VALUES_AT_ONCE:
            write_values(t + 1)
        ids = step.next[:, None]
        if t < dynamics.stop_after:
            continue
        ended = ended | (step.next[:, None] == stop).any(1)
        if stop_texts is not None:
            ended = ended | stop_texts.completed(response[rows, : t + 1][:, -stop_texts.window :])
        if (t + 1) % check_every or t + 1 == most:
            continue
        running = (~ended).nonzero()[:, 0]
        if not len(running):
            break
        if len(running) <= SHRINK_AT * len(ended):
            write_values(t + 1)
            all_ended[rows] = ended
            keep(running)
            rows, ids, ended, attention, noise, positions = (
                tensor[running] for tensor in (rows, ids, ended, attention, noise, positions)
            )
    write_values(t + 1)
    all_ended[rows] = ended
    return Tokens(prompt, prompt_mask, response, mask, all_ended, log_prob, value)


def positions_of(mask: Tensor) -> Tensor:
    """Position ids `[B, L]` of the tokens that `mask` marks as real, counted from 0."""
    return (mask.long().cumsum(1) - 1).clamp(min=0)
