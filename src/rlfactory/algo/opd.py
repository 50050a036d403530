"""On-policy distillation of images (DiffusionOPD, arXiv 2605.15055): a teacher's steps from the
states that the student visits.
"""

from dataclasses import replace
from typing import Any, Literal

import torch

from rlfactory.algo.base import Loss
from rlfactory.algo.ops.step_replay import transition_items
from rlfactory.algo.ops.teachers import Taught, TaughtItems
from rlfactory.batch import Batch, Outputs, TrainingItems
from rlfactory.dynamics.base import Dynamics, gaussian_kl
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import widened


class OPD(Taught[ImageModel, TrainingItems, Batch]):
    """With mu and std of the steps that the student took, and mu_T those of its teacher from the
    same states,

        loss = mean (mu - mu_T)^2 / (2 std^2),

    the KL divergence of the steps, a mean over latent dimensions. Scores are only reported.

    Args:
        divergence: `kl`: as above. `velocity`: `mean (v - v_T)^2` of predictions, which weighs all
            noise levels equally (verl-omni's distill_fm_mse).
    """

    requires = "transitions"
    decided_by = {"divides_by_step_std": ("divergence", {"kl": True})}

    def __init__(
        self,
        dynamics: Dynamics | None = None,
        *,
        divergence: Literal["kl", "velocity"] = "kl",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.dynamics = dynamics
        self.divergence = divergence

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """An advantage of 1 for each sample."""
        return replace(rollout, advantage=torch.ones(len(rollout)))

    def training_items(self, rollout: Rollout, model: ImageModel, **_: int) -> TrainingItems:
        items = transition_items(rollout, model)
        return widened(TaughtItems, items, teachers=self.numbers(rollout))

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """The class's formula; the metric `kl/teacher` is its value by item."""
        replayed = batch.require_replayed()
        with torch.no_grad():
            taught = self.teacher_of(batch).predict(batch.x, batch.t, batch.condition)
        prediction = model.predict(batch.x, batch.t, batch.condition)

        def step_of(predicted: torch.Tensor) -> Any:
            return self.dynamics.step(
                batch.x, predicted, batch.t, replayed.t_next, next=replayed.next
            )

        step = step_of(prediction)
        if self.divergence == "kl":
            losses = gaussian_kl(step.mean, step_of(taught).mean, step.std)
        else:
            losses = (prediction - taught).pow(2).flatten(1).mean(1)
        metrics = {"loss/policy": losses.detach(), "kl/teacher": losses.detach()}
        return Loss(losses.mean(), Outputs(prediction, step), metrics)
