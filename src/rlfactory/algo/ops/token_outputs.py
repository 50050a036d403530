"""A language model's outputs for given responses, from one pass."""

from collections.abc import Callable

from torch import Tensor

from rlfactory.batch import TokenOutputs
from rlfactory.dynamics.token import Token, TokenStep
from rlfactory.model.lm.log_probs import compared_log_prob
from rlfactory.model.text_base import TextModel
from rlfactory.rollout import Tokens


def token_outputs(
    model: TextModel,
    dynamics: Token,
    tokens: Tokens,
    *statistics: Callable[[TokenStep], Tensor],
) -> tuple[TokenOutputs, list[Tensor]]:
    """Likelihoods and values of the M real response tokens, and statistics of their distributions.

    The distributions themselves are among the outputs only if all fit in memory together; if not,
    the hidden states are, from which they can be computed again.

    Args:
        statistics: functions from a step of m tokens to `[m]`.
    """
    holds_all = model.logits_at_once(tokens.count) >= tokens.count

    def measure(logits: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        step = dynamics.step(logits, next=ids)
        found = [statistic(step) for statistic in statistics]
        whole = [step.log_probs] if holds_all else []
        return step.log_prob, compared_log_prob(dynamics, step), *found, *whole

    results, value, states = model.measure(tokens, measure, tokens.real(tokens.response))
    log_prob, compared, *found = results
    if holds_all:
        return TokenOutputs(log_prob, found.pop(), value, compared), found
    return TokenOutputs(log_prob, None, value, compared, states), found
