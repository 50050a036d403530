"""Reward feedback learning (ReFL, arXiv 2304.05977): the gradient of the estimated x0's score."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlfactory.algo.ops.reward_gradient import RewardGradient, StateBatch
from rlfactory.model.base import ImageModel
from rlfactory.utils import rng
from rlfactory.utils.types import Fraction, Positive


class ReFL(RewardGradient):
    """With x_t the state before one of the later sampling steps, the same one for an iteration,

        loss = scale mean of relu(margin - r(decode(x0(x_t, theta)), prompt)),

    where x0(x_t, theta) is the clean sample that the network's prediction at t implies.

    Args:
        begin: The share of sampling steps before the first that may be drawn; published: 30 of 40.
        margin: The score above which a sample has no gradient; null: none, the loss is -r. It is
            2 for ImageReward, whose scores are mostly between -2 and 2.
        scale: Factor on the loss, which matters beside a regularizer and for the gradient's norm.
    """

    def __init__(
        self,
        *given: Any,
        begin: Fraction = 0.75,
        margin: float | None = 2.0,
        scale: Positive = 0.001,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.begin, self.margin, self.scale = begin, margin, scale

    @staticmethod
    def passes(options: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[float, float]:
        """One."""
        return 1.0, 1.0

    def kept_step(self, total: int, *, seed: int, iteration: int) -> int:
        """One of the last steps, all equally likely."""
        first = min(int(self.begin * total), total - 1)
        generator = rng.generator(seed, "truncation", iteration)
        return int(torch.randint(first, total, (), generator=generator))

    def finish(self, model: ImageModel, batch: StateBatch) -> tuple[Tensor, Tensor]:
        """The estimate of x0."""

        def predicted(x: Tensor) -> Tensor:
            return model.predict(x, batch.t, batch.condition)

        prediction = self.run(model, predicted, batch.x)
        return prediction, model.forward_process.to_x0(batch.x, prediction, batch.t)

    def losses(self, scores: Tensor) -> Tensor:
        """The class's formula."""
        if self.margin is None:
            return -self.scale * scores
        return self.scale * torch.relu(self.margin - scores)
