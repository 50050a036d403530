"""No regularizer."""

import torch
from torch import Tensor

from rlfactory.batch import Batch, TokenBatch
from rlfactory.regularizer.base import Regularizer


class NoRegularizer(Regularizer[object, Batch | TokenBatch, object]):
    """A penalty of 0; no second network runs."""

    requires = "nothing"

    def penalty(
        self, model: object, batch: Batch | TokenBatch, outputs: object
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return torch.zeros((), device=batch.advantage.device), {}
