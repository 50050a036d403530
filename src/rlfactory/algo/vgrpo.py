"""V-GRPO (arXiv 2604.23380): GRPO on final samples.

Minus the log-likelihood is a denoising loss of low variance.
"""

from typing import Any, Literal

from torch import Tensor

from rlfactory.algo.ops.noised_items import SurrogateAlgorithm, self_normalised
from rlfactory.batch import Batch
from rlfactory.dynamics.ops.forward_process import ForwardProcess
from rlfactory.model.base import ImageModel
from rlfactory.utils.types import Positive

Prediction = Literal["x", "v", "eps"]
Reduction = Literal["mean", "sum"]


def prediction_error(
    process: ForwardProcess, batch: Batch, prediction: Tensor, kind: Prediction
) -> Tensor:
    """Error of the predicted clean sample (`x`), velocity (`v`) or noise (`eps`).

    Returns `[N, C, H, W]` float64, since ratios are of small differences of its squares.
    """
    x = batch.x.double()
    prediction = prediction.double()
    x0_error = process.to_x0(x, prediction, batch.t) - batch.x0
    if kind == "x":
        return x0_error
    eps_error = process.to_eps(x, prediction, batch.t) - batch.require_eps()
    # the velocity is linear in x0 and eps, so its error follows from theirs
    return eps_error if kind == "eps" else process.velocity(x0_error, eps_error, batch.t)


def denoising_loss(error: Tensor, *, adaptive: bool, reduction: Reduction = "mean") -> Tensor:
    """`mean(d^2) / stop_gradient(mean |d|)` of errors d; `mean(d^2)` unless `adaptive`.

    The division gives the loss a similar size at every time.

    Args:
        error: d, `[N, C, H, W]`.
        adaptive: Whether to divide.
        reduction: Whether the square is averaged or summed over dimensions. The paper's notes sum
            it, which is D times as large, and no published clip range fits that.

    Returns:
        `[N]`.
    """
    loss = self_normalised(error, 1e-8) if adaptive else error.pow(2).flatten(1).mean(1)
    return loss if reduction == "mean" else loss * error[0].numel()


class VGRPO(SurrogateAlgorithm):
    """`SurrogateAlgorithm` whose log-likelihood of a sample is `-L`, with L the mean of
    `denoising_loss` over its times: `r = exp(L_old - L)`.

    Three options keep the variance of L low: noise and times shared within a group (`shared_noise`
    together with `times.shared=group`), stratified times, and the `adaptive` weight.

    Args:
        clip_range: c; None: not clipped.
        shared_noise: Whether the samples of a group are noised with the same eps.
        prediction: What the loss compares: the clean sample, the velocity or the noise.
        adaptive: Divide the squared error by its mean magnitude.
        reduction: mean | sum: reduction of the square over dimensions.
    """

    one_ratio_per_sample = True
    logs_surrogate = True

    def __init__(
        self,
        *given: Any,
        clip_range: Positive | None = 1e-2,
        shared_noise: bool = True,
        adaptive: bool = True,
        prediction: Prediction = "x",
        reduction: Reduction = "mean",
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.clip_range = clip_range
        self.shared_noise = shared_noise
        self.adaptive = adaptive
        self.prediction: Prediction = prediction
        self.reduction: Reduction = reduction

    def surrogate(self, model: ImageModel, batch: Batch, prediction: Tensor) -> Tensor:
        error = prediction_error(model.forward_process, batch, prediction, self.prediction)
        return -denoising_loss(error, adaptive=self.adaptive, reduction=self.reduction)
