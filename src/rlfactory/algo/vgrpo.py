"""V-GRPO: GRPO on whole samples, their likelihood a denoising loss that varies little."""

from typing import Literal

from torch import Tensor

from rlfactory.advantage.base import Advantage
from rlfactory.algo.base import Algorithm, Loss
from rlfactory.algo.forward_process import log_ratio, noised_items, self_normalised
from rlfactory.algo.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.algo.times import Times
from rlfactory.batch import Batch, Items, Outputs
from rlfactory.dynamics.process import Process
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.types import Positive

Prediction = Literal["x", "v", "eps"]
Reduction = Literal["mean", "sum"]


def prediction_error(
    process: Process, batch: Batch, prediction: Tensor, kind: Prediction
) -> Tensor:
    """How far the clean sample, the velocity or the noise that is predicted is off, in float64."""
    x = batch.x.double()
    prediction = prediction.double()
    off_x0 = process.to_x0(x, prediction, batch.t) - batch.x0
    if kind == "x":
        return off_x0
    off_eps = process.to_eps(x, prediction, batch.t) - batch.noise()
    return off_eps if kind == "eps" else process.velocity(off_x0, off_eps, batch.t)


def denoising_loss(error: Tensor, *, adaptive: bool, reduction: Reduction = "mean") -> Tensor:
    """Square over mean magnitude, `[N]`: of like size at every time; else the plain square.

    The gradient sees the square alone. `reduction` is that of the square over dimensions: the
    paper's notes sum it, which makes it D times as large and no published clip range fit.
    """
    loss = self_normalised(error, 1e-8) if adaptive else error.pow(2).flatten(1).mean(1)
    return loss if reduction == "mean" else loss * error[0].numel()


class VGRPO(Algorithm[ImageModel, Items, Batch]):
    """With L the mean of `denoising_loss` over a sample's times, `r = exp(L_old - L)` and

        loss = mean max(-A r, -A clip(r, 1 - c, 1 + c)).

    What keeps L from varying: `shared_noise` in a group (with `times.shared=group`, pairs of time
    and noise), stratified times, and the `adaptive` weighting of the error of an x-`prediction`.
    The first update of an iteration is on-policy: by the `shortcut` its ratios are 1 without a
    second forward pass, which published counts of evaluations include.
    """

    needs = "forward_process"
    surrogate = True
    whole_samples = True

    def __init__(
        self,
        advantage: Advantage,
        times: Times,
        sigmas: Tensor,
        *,
        clip_range: Positive | None = 1e-2,
        shared_noise: bool = True,
        adaptive: bool = True,
        prediction: Prediction = "x",
        reduction: Reduction = "mean",
        shortcut: bool = True,
    ) -> None:
        self.advantage = advantage
        self.times = times
        self.sigmas = sigmas
        self.clip_range = clip_range
        self.shared_noise = shared_noise
        self.adaptive = adaptive
        self.prediction: Prediction = prediction
        self.reduction: Reduction = reduction
        self.shortcut = shortcut

    def items(self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int) -> Items:
        """Each sample, noised at its group's times with its group's noise."""
        return noised_items(
            rollout,
            model,
            self.times,
            self.sigmas,
            shared_noise=self.shared_noise,
            seed=seed,
            iteration=iteration,
        )

    def scores(self, model: ImageModel, batch: Batch) -> Tensor:
        """Minus the denoising loss of each item, `[N]`."""
        return self._scores(model, batch, model.predict(batch.x, batch.t, batch.condition))

    def _scores(self, model: ImageModel, batch: Batch, prediction: Tensor) -> Tensor:
        error = prediction_error(model.forward_process, batch, prediction, self.prediction)
        return -denoising_loss(error, adaptive=self.adaptive, reduction=self.reduction)

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """GRPO's loss on the samples' ratios."""
        prediction = model.predict(batch.x, batch.t, batch.condition)
        scores = self._scores(model, batch, prediction)
        change = batch.by_sample(log_ratio(scores, batch.old))
        advantage = batch.by_sample(batch.advantage)
        losses, ratio = clipped_surrogate(change, advantage, self.clip_range)
        metrics = {
            "loss/policy": losses.detach(),
            "surrogate/mean": scores.detach(),
            **ratio_metrics(ratio, self.clip_range),
        }
        return Loss(losses.mean(), Outputs(prediction, log_ratio=change), metrics)
