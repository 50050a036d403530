"""A language model's outputs for given responses, from one pass."""

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import pad

from rlfactory.batch import TokenOutputs
from rlfactory.dynamics.token import Token, TokenStep
from rlfactory.model.text_base import TextModel
from rlfactory.rollout import Tokens


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
