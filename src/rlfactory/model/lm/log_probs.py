"""Token log-probabilities of given responses under any weight set."""

import torch
from torch import Tensor

from rlfactory.dynamics.token import Token
from rlfactory.model.text_base import TextModel
from rlfactory.rollout import Tokens


@torch.no_grad()
def response_log_prob(
    model: TextModel, weights: str, tokens: Tokens, dynamics: Token, batch: int
) -> Tensor:
    """Log-probabilities `[B, G]` of the response tokens under a weight set, 0 on padding.

    Args:
        weights: the name of the weight set.
        batch: the most responses in one forward pass; fewer if their logits need it.
    """

    log_probs = torch.zeros_like(tokens.log_prob)
    tokens, size = tokens.measured(), model.rows_at_once(log_probs.shape[1], batch)
    with model.weights(weights):
        for start in range(0, len(log_probs), size):
            rows = slice(start, start + size)
            part = tokens.part(rows)
            found, _ = model.token_log_probs(part, dynamics)
            log_probs[rows, : part.mask.shape[1]] = part.pad(found)
    return log_probs
