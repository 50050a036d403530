"""No regularizer: the zero of the group."""

import torch
from torch import Tensor

from rlfactory.batch import Batch, TokenBatch
from rlfactory.regularizer.base import Regularizer


class NoRegularizer(Regularizer[object, Batch | TokenBatch, object]):
    """Adds nothing and runs no second network."""

    needs = "nothing"

    def penalty(
        self, model: object, batch: Batch | TokenBatch, outputs: object
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Zero, and nothing measured."""
        del model, outputs
        return torch.zeros((), device=batch.advantage.device), {}
