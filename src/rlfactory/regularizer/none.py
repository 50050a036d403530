"""No regularizer: the zero of the group."""

import torch
from torch import Tensor

from rlfactory.regularizer.base import Regularizer
from rlfactory.rollout import Batch, TokenBatch


class NoRegularizer(Regularizer[object, Batch | TokenBatch, object]):
    """Adds nothing and runs no second network."""

    needs = "nothing"

    def penalty(
        self, model: object, batch: Batch | TokenBatch, outputs: object
    ) -> tuple[Tensor, Tensor]:
        """Zeros."""
        del model, outputs
        zero = torch.zeros(len(batch), device=batch.advantage.device)
        return zero.sum(), zero
