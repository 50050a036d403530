"""How likely a weight set finds responses that another one may have drawn."""

import torch
from torch import Tensor

from rlfactory.dynamics.token import Token
from rlfactory.model.text import TextModel
from rlfactory.nest import chunks, take
from rlfactory.rollout import Tokens


def counted(dynamics: Token, log_prob: Tensor, log_probs: Tensor, tokens: Tokens) -> Tensor:
    """What two policies are compared by, `[M]`, of `log_prob` `[M]` and `log_probs` `[M, V]`.

    Truncated ones are compared before truncation: a token that the other would never draw has no
    likelihood there.
    """
    if not compares_whole(dynamics):
        return log_prob
    return log_probs.gather(-1, tokens.response[tokens.mask][:, None])[:, 0]


def compares_whole(dynamics: Token) -> bool:
    """Whether the likelihoods of a rollout are of another distribution than is compared."""
    return dynamics.truncates and dynamics.log_prob_of == "sampled"


@torch.no_grad()
def response_log_prob(
    model: TextModel, weights: str, tokens: Tokens, dynamics: Token, batch: int
) -> Tensor:
    """Log-probabilities `[B, G]` of the responses under a weight set, 0 on padding; of at most
    `batch` responses at once.
    """
    found = torch.zeros_like(tokens.log_prob)
    with model.weights(weights):
        for rows in chunks(len(found), model.rows_at_once(found.shape[1], batch)):
            part = take(tokens, rows)
            step = dynamics.step(model.logits(part), next=part.response[part.mask])
            values = counted(dynamics, step.log_prob, step.log_probs, part)
            found[rows.to(found.device)] = spread(values, part)
    return found


def spread(values: Tensor, tokens: Tokens) -> Tensor:
    """`[M]` on the real tokens, `[B, G]`, 0 on padding."""
    found = torch.zeros_like(tokens.log_prob)
    found[tokens.mask] = values
    return found
