"""KL penalty towards the behaviour policy, which drew the samples (V-GRPO)."""

from typing import Literal

from torch import Tensor

from rlfactory.algo.ops.token_kl import estimate_kl
from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import ImageDivergence, mean_square
from rlfactory.regularizer.coefficient import Coefficient
from rlfactory.utils.pytree import require


class KLBehaviour(ImageDivergence):
    """Divergence from the behaviour policy; V-GRPO's text and code differ on what is compared.

    With `d = log p - log p_old` of the algorithm's surrogate likelihood,

        compare=prediction  mean (x0_hat - x0_hat_old)^2             (runs the weight set `old`)
        compare=surrogate   k2 = d^2 / 2   or   k3 = e^d - 1 - d     (no second network runs)

    The first is the paper's penalty. The second hardly acts: d is about 1e-2, so k2's gradient is
    that small a part of the policy loss's, times the coefficient.

    k2 and k3 are 0 with gradient 0 where the policy has not moved, and pull it back from either
    side. For true likelihoods k3 would be unbiased, since the old policy drew the samples. A
    surrogate is not a likelihood (the mean of its ratio need not be 1), and k3's pull is
    exponential on one side and at most 1 on the other, where k2's is d. The plain difference
    `-d = L_new - L_old` is not offered: its gradient is that of `L_new` alone, which fits the
    policy to its own samples instead of penalising a divergence.
    """

    decided_by = {"reference": ("compare", {"prediction": "old"})}

    def __init__(
        self,
        *,
        coefficient: Coefficient,
        compare: Literal["prediction", "surrogate"] = "prediction",
        estimator: Literal["k2", "k3"] = "k2",
    ) -> None:
        """
        Args:
            compare: prediction (clean samples, of `old`) | surrogate (log-likelihoods; a hundredth
                of the pull).
            estimator: k2 | k3: estimator of the surrogate's divergence.
        """
        self.coefficient = coefficient
        self.compare = compare
        self.estimator: Literal["k2", "k3"] = estimator
        self.reference = "old" if compare == "prediction" else None

    def divergence(self, model: ImageModel, batch: Batch, outputs: Outputs) -> Tensor:
        """One for each prediction or surrogate ratio."""
        if self.compare == "surrogate":
            log_ratio = require(outputs.log_ratio, "the ratio of a surrogate")
            # negated: the samples come from the old policy, and k3's argument is log p_old - log p
            return estimate_kl(-log_ratio, self.estimator)
        predictions = outputs.prediction, self.compared(model, batch, outputs)
        x0, x0_old = (model.forward_process.to_x0(batch.x, v, batch.t) for v in predictions)
        return mean_square(x0 - x0_old)
