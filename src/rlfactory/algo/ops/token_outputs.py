"""Quantities of each token of a response: outputs from one pass, and rewards."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlfactory.algo.advantage.gae import whiten
from rlfactory.batch import TokenOutputs
from rlfactory.dynamics.token import Token, TokenStep
from rlfactory.model.text_base import TextModel
from rlfactory.rollout import Tokens

MissingEnd = Literal["none", "penalty", "replace"]
RewardScale = Literal["none", "batch", "whiten"]


def token_outputs(
    model: TextModel,
    dynamics: Token,
    tokens: Tokens,
    *statistics: Callable[[TokenStep], Tensor],
    value_tokens: Tokens | None = None,
) -> tuple[TokenOutputs, list[Tensor]]:
    """Likelihoods and values of the M real response tokens, and statistics of their distributions.

    The distributions themselves are among the outputs only if all fit in memory together; if not,
    the hidden states are, from which they can be computed again.

    Args:
        statistics: functions from a step of m tokens to `[m]`.
        value_tokens: The same responses by `with_end_state`, if values are of these states.
    """
    holds_all = model.logits_at_once(tokens.count) >= tokens.count

    def measure(logits: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        step = dynamics.step(logits, next=ids)
        found = [statistic(step) for statistic in statistics]
        whole = [step.log_probs] if holds_all else []
        return step.log_prob, *found, *whole

    results, value, states = model.measure(
        tokens, measure, tokens.real(tokens.response), value_tokens=value_tokens
    )
    log_prob, *found = results
    if holds_all:
        return TokenOutputs(log_prob, found.pop(), value), found
    return TokenOutputs(log_prob, None, value, states), found


def end_states_added(values: Tensor, states: Tokens, tokens: Tokens) -> Tensor:
    """Values `[S]` of states as `[M]`, that of a state after an end added to its last token's.

    Args:
        values: One for each state of `states`.
        states: The `with_end_state` of `tokens`.
        tokens: Responses of M tokens.
    """
    width = tokens.mask.shape[1]
    missing = width + 1 - states.mask.shape[1]
    table, mask = pad(states.pad(values), (0, missing)), pad(states.mask, (0, missing))
    is_end = mask[:, 1:] & ~pad(tokens.mask, (0, 1))[:, 1:]
    return tokens.real(table[:, :width] + table[:, 1:].where(is_end, 0.0))


def penalise_missing_end(scores: Tensor, ended: Tensor, how: MissingEnd, value: float) -> Tensor:
    """Scores; where `ended` `[B]` is false less `value` (`penalty`), or `-value` (`replace`)."""
    if how == "none":
        return scores
    penalised = scores - value if how == "penalty" else torch.full_like(scores, -value)
    return torch.where(ended, scores, penalised)


def overlong_penalty(lengths: Tensor, longest: int, buffer: float, most: float) -> Tensor:
    """DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13), `[B]`, 0 to `most`.

    It rises linearly over the last `buffer longest` tokens.

    Args:
        lengths: Numbers of tokens, `[B]`.
        longest: The most tokens that a response can have.
        buffer: Share of `longest` over which the punishment rises; 0: none.
        most: The punishment of a response of `longest` tokens.
    """
    if buffer == 0:
        return torch.zeros_like(lengths, dtype=torch.float32)
    rising = buffer * longest
    return most * ((lengths.float() - (longest - rising)) / rising).clamp(0, 1)


def scale_scores(scores: Tensor, how: RewardScale, *, shift: bool) -> Tensor:
    """Scores `[B]`, normalised over the batch.

    Args:
        scores: `[B]`.
        how: `batch`: (r - mean) / (std + 1e-5), unbiased; `whiten`: (r - mean) / sqrt(population
            variance + 1e-8).
        shift: Whether `whiten` subtracts the mean.
    """
    if how == "none":
        return scores
    if how == "batch":
        # less the first score, so that equal ones become exactly 0: their mean may be rounded
        scores = scores - scores[:1]
        return (scores - scores.mean()) / (scores.std() + 1e-5)
    return whiten(scores, torch.ones_like(scores, dtype=torch.bool), shift_mean=shift)


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float | None) -> Tensor:
    """The critic's clipped loss (OpenAI, TRL), `0.5 max((V - R)^2, (V_clipped - R)^2)`.

    `V_clipped = V_old + clip(V - V_old, -c, c)`; without a clip the loss is `0.5 (V - R)^2`.

    Args:
        values: V now, any shape.
        old_values: V at the rollout.
        returns: R, the targets.
        clip: c, the largest change of V that lowers the loss (usually 0.2); None: not clipped.

    Returns:
        The loss of each value, in the shape of `values`.
    """
    loss = (values - returns).square()
    if clip is not None:
        clipped = old_values + (values - old_values).clamp(-clip, clip)
        loss = torch.maximum(loss, (clipped - returns).square())
    return 0.5 * loss
