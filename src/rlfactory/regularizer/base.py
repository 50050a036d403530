"""The contract of a regularizer: a penalty on the policy's divergence from another policy.

Constructor. Keyword-only parameters are the configuration (`conf/regularizer/`), `coefficient`
among them. The only run-time argument is `dynamics`, positional: the `Dynamics` (images) or `Token`
(texts) that samples are drawn with.

Order of calls. When the run is built, the weight sets in `references` are created. In each
iteration `shape_reward` is called once, after scoring and before the advantages, then `weigh`;
`penalty` for each micro-batch, after `Algorithm.loss` and on its outputs; `update_coefficients`
after each update with `moment="step"`, and after the iteration's last update with
`moment="iteration"`, then `take_reset`.

A static method `validate(options, run)` may check options before a run (`utils.types.Faults`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.dynamics.base import Dynamics, Step, gaussian_kl
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.coefficient import Coefficient
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require

ModelT = TypeVar("ModelT", contravariant=True)
BatchT = TypeVar("BatchT", contravariant=True)
OutputsT = TypeVar("OutputsT", contravariant=True)
WeightSet = Literal["reference", "old", "ema"]
KL = "kl/reference"
"""Metric name of the divergence of a single penalty, whatever weight set it compares with."""


class Regularizer(ABC, Generic[ModelT, BatchT, OutputsT]):
    """Base class of all regularizers. Class attributes must be literals: checks read them.

    Attributes:
        requires: What a batch must hold: `nothing`, `velocity` (any image batch), `transitions`,
            `tokens`; `terms` stands for what the terms of a sum require.
        process: The forward process that the formula is valid for; None: any.
        divides_by_step_std: Whether the divergence is undefined for a step without noise.
        moves_reference: Whether the reference policy is replaced during training (`take_reset`).
        decided_by: As an algorithm's (`algo/base.py`).
        reference: The weight set to stay close to; None: no other network is evaluated.
        coefficient: Factor on the divergence; None if there is none, or several.
    """

    requires: ClassVar[Literal["nothing", "velocity", "transitions", "tokens", "terms"]]
    process: ClassVar[Literal["flow", "vp"] | None] = None
    divides_by_step_std: ClassVar[bool] = False
    moves_reference: ClassVar[bool] = False
    decided_by: ClassVar[Mapping[str, tuple[str, Mapping[Any, Any]]]] = {}
    reference: WeightSet | None = None
    coefficient: Coefficient | None = None

    @abstractmethod
    def penalty(
        self, model: ModelT, batch: BatchT, outputs: OutputsT
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the penalty that is added to the loss of a micro-batch.

        Args:
            model: The model, with the policy's weights in use.
            batch: N training items.
            outputs: What the policy's forward pass in `Algorithm.loss` returned.

        Returns:
            The scalar penalty, with its gradient, and the detached divergences by metric name,
            `[N]` (tokens: `[M]`).

        Raises:
            ValueError: The batch or the outputs lack what the regularizer `requires`.
        """

    def shape_reward(self, model: ModelT, rollout: Rollout) -> Rollout:
        """Add a penalty to the reward instead of the loss; by default nothing changes.

        Args:
            model: The model.
            rollout: B scored samples of this rank.

        Returns:
            The rollout, with `penalty` `[B, G]` to subtract from the rewards of tokens.
        """
        return rollout

    def weigh(self, everyone: Rollout, main: str) -> Rollout:
        """Weigh the samples in the penalty; by default nothing changes.

        Args:
            everyone: The scored samples of all ranks.
            main: Name of the reward's main score.

        Returns:
            The rollout, with `penalty_weight` `[B]`.
        """
        return everyone

    def take_reset(self) -> bool:
        """Whether the reference policy becomes the present one; asked once an iteration."""
        return False

    @property
    def references(self) -> set[str]:
        """Names of the weight sets that `penalty` or `shape_reward` evaluates."""
        return set() if self.reference is None else {self.reference}

    @property
    def coefficients(self) -> dict[str, Coefficient]:
        """The coefficients by the metric names that their values are logged under."""
        return {} if self.coefficient is None else {"kl/coefficient": self.coefficient}

    def update_coefficients(
        self, moment: str, metrics: Mapping[str, float], length: float, samples: int
    ) -> None:
        """Adapt the coefficients whose `every` is this moment to the measured divergences.

        Args:
            moment: `step` (after an update) or `iteration`.
            metrics: Mean divergences by metric name.
            length: Mean number of tokens of a response; 1 for images.
            samples: Number of samples that the means are over.
        """
        kl, coefficient = metrics.get(KL), self.coefficient
        if coefficient is not None and coefficient.every == moment and kl is not None:
            coefficient.update(kl, kl * length, samples)


class ImageDivergence(Regularizer[ImageModel, Batch, Outputs]):
    """`coefficient mean(divergence)`, of images: its subclasses say what the divergence is.

    With a coefficient of 0 the divergence is only measured: the reference network still runs.
    """

    requires: ClassVar[Literal["velocity", "transitions"]] = "velocity"
    coefficient: Coefficient

    def __init__(self, *, coefficient: Coefficient, reference: WeightSet = "reference") -> None:
        self.coefficient = coefficient
        self.reference = reference

    @abstractmethod
    def divergence(self, model: ImageModel, batch: Batch, outputs: Outputs) -> Tensor:
        """The divergence of each item.

        Args:
            model: The model, with the policy's weights in use.
            batch: N training items.
            outputs: What the policy's forward pass returned.

        Returns:
            `[N]`, with its gradient.
        """

    def penalty(
        self, model: ImageModel, batch: Batch, outputs: Outputs
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """`coefficient mean(kl)`, weighted by `penalty_weight` where it is set, and kl `[N]`."""
        kl = self.divergence(model, batch, outputs)
        weight = batch.penalty_weight
        # a divergence may be one of each sample, whose items follow one another
        weighted = kl if weight is None else kl * weight.to(kl).view(len(kl), -1)[:, 0]
        return self.coefficient.value * weighted.mean(), {KL: kl.detach()}

    # Only the reference's forward pass is without gradient; the divergence itself must have one.
    @torch.no_grad()
    def compared(self, model: ImageModel, batch: Batch, outputs: Outputs) -> Tensor:
        """The prediction of the weight set `reference`, `[N, C, H, W]`.

        Cached in `outputs.by_weight_set`, where the algorithm or another penalty may have put it.
        """
        name = require(self.reference, "a weight set to compare with")
        if name not in outputs.by_weight_set:
            with model.weights(name):
                outputs.by_weight_set[name] = model.predict(batch.x, batch.t, batch.condition)
        return outputs.by_weight_set[name]


class StepDivergence(ImageDivergence):
    """A divergence of the policy's sampling steps from those of the reference."""

    requires = "transitions"

    def __init__(
        self, dynamics: Dynamics, *, coefficient: Coefficient, reference: WeightSet = "reference"
    ) -> None:
        super().__init__(coefficient=coefficient, reference=reference)
        self.dynamics = dynamics

    def compared_step(self, model: ImageModel, batch: Batch, outputs: Outputs) -> Step:
        """The reference's step from the states of a batch that replays steps."""
        replayed = batch.require_replayed()
        prediction = self.compared(model, batch, outputs)
        return self.dynamics.step(batch.x, prediction, batch.t, replayed.t_next, next=replayed.next)

    def gaussian(self, model: ImageModel, batch: Batch, outputs: Outputs) -> Tensor:
        """KL divergence of two normal steps of equal std, `mean (mu - mu_ref)^2 / (2 std^2)`."""
        step = outputs.require_step()
        return gaussian_kl(step.mean, self.compared_step(model, batch, outputs).mean, step.std)


def mean_square(difference: Tensor) -> Tensor:
    """Mean square over a sample's dimensions, `[N, ...]` to `[N]`."""
    return difference.pow(2).flatten(1).mean(1)
