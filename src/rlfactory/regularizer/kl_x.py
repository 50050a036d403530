"""KL penalty on the means of steps, not divided by their variance (Flow-Factory)."""

from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import StepDivergence, mean_square


class KLMean(StepDivergence):
    """`kl = mean (mu - mu_ref)^2`, with the same weight for steps of all noise levels.

    Args:
        coefficient: Factor on the divergence; about 1e-2.
    """

    def divergence(self, model: ImageModel, batch: Batch, outputs: Outputs) -> Tensor:
        reference = self.compared_step(model, batch, outputs)
        return mean_square(outputs.require_step().mean - reference.mean)
