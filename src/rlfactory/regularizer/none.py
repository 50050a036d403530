"""No regularizer: the zero of the group."""

import torch
from torch import Tensor

from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import Regularizer
from rlfactory.rollout import Batch, Outputs


class NoRegularizer(Regularizer):
    """Adds nothing and runs no second network."""

    needs = "nothing"

    def penalty(self, model: ImageModel, batch: Batch, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Zeros."""
        del model
        zero = torch.zeros(len(batch), device=outputs.prediction.device)
        return zero.sum(), zero
