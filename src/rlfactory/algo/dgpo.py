"""DGPO (arXiv 2510.08425): DPO on whole groups of final samples, weighted by their advantages."""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch.nn.functional import softplus

from rlfactory.algo.base import Loss
from rlfactory.algo.ops.groups import GroupAlgorithm, cell_means
from rlfactory.algo.ops.noised_items import compared_predictions, squared_error
from rlfactory.algo.ops.surrogate import ratio_metrics
from rlfactory.batch import Batch, Outputs, TrainingItems
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import OLD
from rlfactory.rollout import Rollout
from rlfactory.utils.types import Positive


class DGPO(GroupAlgorithm):
    """With one noise and one time for all samples of a group, and l their matching losses,

        l    = mean (prediction - target)^2,   m = mean over the group of A (l - l_ref),
        loss = mean over groups of -log sigmoid(-beta m) / beta,

    whose gradient is `sigmoid(beta m)` times that of `mean A l`: the published loss. A sample whose
    ratio `exp(l_old - l)` is beyond `1 - c` to `1 + c` in the direction of A has no gradient.

    Args:
        beta: Steepness of the groups' weights; published: 100, 10 with PickScore, and 2000 where
            `reference` is `old`.
        clip_range: c; published: 1e-2, 1e-3 without guidance, 1e-5 where `reference` is `old`.
        reference: What l_ref is of: the model before training (the paper), or the weight set `old`
            (TDM-R1, arXiv 2603.07700).
        behaviour: The weight set that samples; published: `old` after 200 to 500 updates.
    """

    compared_weight_sets: tuple[str, ...] = ("reference", "old")
    decided_by = {
        "compared_weight_sets": (
            "reference",
            {"reference": ("reference", "old"), "old": ("old",)},
        )
    }

    def __init__(
        self,
        *given: Any,
        beta: Positive = 100.0,
        clip_range: Positive = 1e-2,
        reference: Literal["reference", "old"] = "reference",
        behaviour: Literal["policy", "old"] = "policy",
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.beta = beta
        self.clip_range = clip_range
        self.reference = reference
        self.compared_weight_sets = (OLD,) if reference == OLD else (reference, OLD)
        self.behaviour = behaviour

    def training_items(self, rollout: Rollout, model: ImageModel, **key: int) -> TrainingItems:
        # all samples of a group have the same random draws, however `times` shares them
        keyed = replace(rollout, index=rollout.groups)
        return super().training_items(keyed, model, **key)

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """The class's formula; the metric `ratio/clip_fraction` is the share without gradient."""
        prediction, others = compared_predictions(model, batch, self.compared_weight_sets)
        error, advantage = squared_error(model, batch, prediction), batch.advantage.double()
        errors = {name: squared_error(model, batch, other) for name, other in others.items()}
        ratio = (errors[OLD] - error.detach()).exp()
        high, low = ratio > 1 + self.clip_range, ratio < 1 - self.clip_range
        beyond = torch.where(advantage > 0, high, low)
        counted = torch.where(beyond, error.detach(), error)
        margin = cell_means(advantage * (counted - errors[self.reference]), batch)
        losses = softplus(self.beta * margin) / self.beta
        metrics = {
            "loss/policy": losses.detach(),
            **ratio_metrics(ratio, None),
            "ratio/clip_fraction": beyond.float(),
            "preference/margin": -margin.detach(),
        }
        return Loss(losses.mean(), Outputs(prediction, by_weight_set=others), metrics)
