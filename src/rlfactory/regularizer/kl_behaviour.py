"""Divergence from the policy that sampled, as V-GRPO penalises it."""

from typing import Literal

from torch import Tensor

from rlfactory.algo.divergence import estimate
from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.nest import present
from rlfactory.regularizer.base import Regularizer, mean_square, reference_prediction, weighed
from rlfactory.regularizer.coefficient import Coefficient


class KLBehaviour(Regularizer[ImageModel, Batch, Outputs]):
    """What is compared with the behaviour policy, of which the published text and code differ:

    `surrogate`: the likelihoods that the algorithm's ratio is of. Of the old policy only its
    surrogate is kept, and no second network runs. `prediction`: the clean samples `x0_hat` that
    the policy and the `old` weight set predict, `mean (x0_hat - x0_hat_old)^2`.

    With `d` the log of the ratio, new over old, the estimators of the surrogate's divergence are
    `k2 = d^2 / 2` and `k3 = e^d - 1 - d`. Both are 0 with gradient 0 where nothing has moved, and
    pull back from either side. The samples are the old policy's, so of true likelihoods k3 and its
    gradient would be unbiased; a surrogate is none (the ratio's mean need not be 1), and k3's pull
    is exponential on the one side and at most 1 on the other, where k2's is `d`. The bare
    difference `-d = L_new - L_old` is not offered: its gradient is that of `L_new`, wherever the
    old policy is, which is no penalty but fitting one's own samples.
    """

    needs = "velocity"
    coefficient: Coefficient

    def __init__(
        self,
        *,
        coefficient: Coefficient,
        compare: Literal["surrogate", "prediction"] = "surrogate",
        estimator: Literal["k2", "k3"] = "k2",
    ) -> None:
        self.coefficient = coefficient
        self.compare = compare
        self.estimator: Literal["k2", "k3"] = estimator
        self.reference = "old" if compare == "prediction" else None

    def penalty(
        self, model: ImageModel, batch: Batch, outputs: Outputs
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """`coefficient mean kl` and the divergences, `[N]`, or `[n]` as the surrogate's ratio."""
        if self.compare == "surrogate":
            log_ratio = present(outputs.log_ratio, "the ratio of a surrogate")
            kl = estimate(-log_ratio, self.estimator)
        else:
            kl = mean_square(_clean(model, batch, outputs))
        return weighed(self.coefficient, kl)


def _clean(model: ImageModel, batch: Batch, outputs: Outputs) -> Tensor:
    """How far apart the two policies' clean samples are, `[N, C, H, W]`."""
    old = reference_prediction(model, batch, outputs, "old")
    to_x0 = model.forward_process.to_x0
    return to_x0(batch.x, outputs.prediction, batch.t) - to_x0(batch.x, old, batch.t)
