"""KL penalty on velocities (DiffusionNFT, AWM, Flow-Factory)."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import ImageDivergence, mean_square


class KLVelocity(ImageDivergence):
    """`kl = mean (v - v_ref)^2`; works with every algorithm on images.

    Args:
        coefficient: Factor on the divergence; 1e-4 to 3e-3 for the weight set `reference`, 1 for
            AWM's slow `old` policy.
    """

    def divergence(self, model: ImageModel, batch: Batch, outputs: Outputs) -> Tensor:
        return mean_square(outputs.prediction - self.compared(model, batch, outputs))
