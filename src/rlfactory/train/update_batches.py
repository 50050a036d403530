"""What an update learns from: its minibatch, training items and micro-batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from rlfactory.batch import Batch, TokenBatch, TrainingItems
from rlfactory.rollout import Rollout
from rlfactory.train.components import Components, TrainingBudget
from rlfactory.train.guards.failure_dump import UpdatePosition
from rlfactory.train.minibatches import longest_first, split_minibatches

Items = TrainingItems | TokenBatch


@dataclass(frozen=True)
class UpdateBatches:
    """Makes the batches of updates, of this rank's samples.

    Attributes:
        components: the live objects.
        budget: the numbers of the experiment.
    """

    components: Components
    budget: TrainingBudget

    def minibatches(self, everyone: Rollout, iteration: int, epoch: int) -> Sequence[Tensor]:
        """The row numbers in `everyone`, the samples of all ranks, of each update of an epoch.

        Texts of like length are neighbours, so that micro-batches have little padding.
        """
        budget, key = self.budget, [iteration, epoch] if epoch else [iteration]
        minibatches = split_minibatches(
            budget.shares,
            everyone.groups,
            budget.updates_per_iteration,
            seed=budget.seed,
            key=key,
        )
        if everyone.tokens is None:
            return minibatches
        lengths = everyone.tokens.total_lengths
        return [longest_first(rows, lengths) for rows in minibatches]

    def items(self, samples: Rollout, position: UpdatePosition) -> Items | None:
        """The training items of samples; None where this rank has no sample of the minibatch."""
        if not len(samples):
            return None
        items: Items = self.components.algo.training_items(
            samples,
            self.components.model,
            seed=self.budget.seed,
            iteration=position.iteration,
        )
        return items

    def micro_batches(self, items: Items | None) -> Iterator[Batch | TokenBatch]:
        """The micro-batches of items."""
        return iter(()) if items is None else items.split(self.budget.micro_batch)

    def padded(
        self, items: Items | None, samples: Rollout, position: UpdatePosition
    ) -> Iterator[tuple[Any, bool]]:
        """This rank's micro-batches, and padding where another rank has more of them."""
        return self.components.hardware.pad_micro_batches(
            self.micro_batches(items), partial(self._padding, samples, position)
        )

    def _padding(self, samples: Rollout, position: UpdatePosition) -> Batch | TokenBatch | None:
        """A micro-batch without effect, for a rank that has fewer of them than another."""
        if samples.all_ranks is None or samples.all_ranks.padding is None:
            return None
        items = self.items(samples.all_ranks.padding, position)
        return next(self.micro_batches(items))
