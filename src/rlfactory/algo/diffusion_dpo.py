"""Diffusion-DPO (arXiv 2311.12908): on the best and the worst image of each group, or on data."""

from dataclasses import replace

from torch import Tensor

from rlfactory.algo.base import PAIR, Algorithm, Loss
from rlfactory.algo.ops.completions import given_image
from rlfactory.algo.ops.noised_items import compared_predictions, noised_items, squared_error
from rlfactory.algo.ops.preference import (
    GivenPairs,
    LossType,
    PairItems,
    best_and_worst,
    ordered_in_pairs,
    preference_losses,
    preference_metrics,
    whole_pairs,
)
from rlfactory.algo.times import Times
from rlfactory.batch import Batch, Outputs, TrainingItems
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.rollout import Rollout
from rlfactory.utils.types import BelowHalf, Positive


class DiffusionDPO(Algorithm[ImageModel, TrainingItems, Batch]):
    """With x_w the best sample of a group, x_l the worst, the same noise and time t for both,

        l(x) = mean (prediction(x_t, t) - target)^2,   d(x) = l(x) - l_ref(x),
        m    = -(d(x_w) - d(x_l)) / 2,
        loss = mean over pairs of preference_losses(m), by default -log sigmoid(beta m).

    The prediction is the noise or the velocity, as the model's. The reference is the model before
    training; with LoRA it is the network without its adapters.

    Args:
        loss_type: See `preference_losses`: sigmoid | ipo | hinge | robust: the loss of a pair.
        beta: As in the published code, whose squared errors are means over dimensions: it has the
            paper's factor T w in it. Published: 2000 to 5000.
        label_smoothing: The probability that a pair is labelled the wrong way round, for `sigmoid`
            and `robust`.
    """

    requires = "forward_process"
    learns_from_pairs = True
    compared_weight_sets = ("reference",)

    def __init__(
        self,
        times: Times,
        sigmas: Tensor,
        *,
        loss_type: LossType = "sigmoid",
        beta: Positive = 100.0,
        label_smoothing: BelowHalf = 0.0,
    ) -> None:
        self.times = times
        self.sigmas = sigmas
        self.loss_type: LossType = loss_type
        self.beta = beta
        self.label_smoothing = label_smoothing

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """Only the best and the worst sample of each group, where they differ."""
        return best_and_worst(rollout, rollout.rewards[main].float().cpu())

    def normalise_update(self, samples: Rollout) -> Rollout:
        """The chosen sample of each pair directly before the rejected one."""
        return ordered_in_pairs(samples)

    def training_items(
        self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int
    ) -> TrainingItems:
        """Each pair with fresh noise at each of its T times, the two items of a time together."""
        rollout = whole_pairs(rollout)
        # both samples of a group have the same random draws, however `times` shares them
        keyed = replace(rollout, index=rollout.groups)
        items = noised_items(keyed, model, self.times, self.sigmas, seed=seed, iteration=iteration)
        return PairItems.of(items)

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        prediction, others = compared_predictions(model, batch, self.compared_weight_sets)
        error, error_ref = (squared_error(model, batch, x) for x in (prediction, others[REFERENCE]))
        log_ratios = -0.5 * (error - error_ref).view(-1, PAIR)
        margin = log_ratios[:, 0] - log_ratios[:, 1]
        losses = preference_losses(margin, self.beta, self.loss_type, self.label_smoothing)
        metrics = {"loss/policy": losses.detach(), **preference_metrics(log_ratios, self.beta)}
        return Loss(losses.mean(), Outputs(prediction, by_weight_set=others), metrics)


class OfflineDiffusionDPO(GivenPairs, DiffusionDPO):
    """`DiffusionDPO` as published: the two samples of a pair are images of the data.

    Each row of the data gives a pair, and evaluations draw from the policy.

    Args:
        chosen: The column of the data with the preferred image: a path, or an image.
    """

    given = staticmethod(given_image)

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """1 for the chosen images, -1 for the rejected ones."""
        return replace(rollout, advantage=1.0 - 2.0 * (rollout.index % PAIR))
