"""What is done to the scores of responses before advantages; B responses."""

from typing import Literal

import torch
from torch import Tensor

from rlfactory.algo.advantage.gae import whiten

MissingEnd = Literal["none", "penalty", "replace"]
RewardScale = Literal["none", "batch", "whiten"]


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
