"""Minibatches: what each update of an epoch learns from, and in which order; and the passes of the
network into which the training items of one are divided.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlfactory.batch import Batch, TokenBatch, TrainingItems
from rlfactory.rollout import Rollout
from rlfactory.train.components import Components, Shares, TrainingBudget
from rlfactory.utils import rng

UpdateItems = TrainingItems | TokenBatch


def minibatches_of(
    everyone: Rollout, budget: TrainingBudget, model: Any, iteration: int, epoch: int = 0
) -> Sequence[Tensor]:
    """The row numbers in `everyone`, the samples of all ranks, of each update of an epoch.

    Texts of like length are neighbours, so that micro-batches have little padding; or those of a
    prompt, where the model then reads less.
    """
    key = [iteration, epoch] if epoch else [iteration]
    minibatches = split_minibatches(
        budget.shares, everyone.groups, budget.updates_per_iteration, seed=budget.seed, key=key
    )
    if (tokens := everyone.tokens) is None:
        return minibatches
    orders = [longest_first(rows, tokens.total_lengths) for rows in minibatches]
    if not model.shares_prompts:
        return orders
    from rlfactory.model.lm.shared_prompts import prompts_together  # of language models alone

    return [prompts_together(rows, tokens, budget.micro_batch) for rows in orders]


def split_minibatches(
    kind: Shares, groups: Tensor, updates: int, *, seed: int, key: Sequence[int]
) -> Sequence[Tensor]:
    """Split an epoch's samples into minibatches, in random order.

    Args:
        kind: `random` shuffles all samples; `even` takes equally many samples (up to one) of each
            group, so that ranks, which own complete groups, have equally much work in each update;
            `groups` takes whole groups, equally many (up to one), and of neighbouring groups, which
            a rank owns, equally many too.
        key: the rest of the random key: the iteration, and the epoch from the second on.

    Returns:
        The row numbers of each minibatch; each sample is in one of them.
    """
    generator = rng.generator(seed, "order", *key)
    order = torch.randperm(len(groups), generator=generator)
    if kind == "random":
        return order.tensor_split(updates)
    if kind == "groups":
        numbers = torch.unique(groups)
        # of every `updates` neighbours one for each update; at least once, as there may be no group
        starts = range(0, max(len(numbers), 1), updates)
        turns = [torch.randperm(updates, generator=generator) for _ in starts]
        dealt = torch.cat(turns)[torch.searchsorted(numbers, groups)]
        return [order[dealt[order] == k] for k in range(updates)]
    by_group = order[groups[order].argsort(stable=True)]
    # minibatch k takes rows k, k + updates, ... of the samples sorted by group, shuffled again so
    # that a micro-batch does not hold one group only
    shuffled = torch.randperm(len(groups), generator=generator)
    return [by_group[shuffled[shuffled % updates == k]] for k in range(updates)]


def longest_first(rows: Tensor, lengths: Tensor) -> Tensor:
    """The row numbers of a minibatch by falling length, those of equal length in their order.

    A micro-batch is as wide as its longest text, and the gradient of a minibatch does not depend
    on how it is divided. The widest one comes first: if it fits into memory, all do.
    """
    return rows[lengths[rows].argsort(descending=True, stable=True)]


@dataclass(frozen=True)
class Passes:
    """Divides the training items of samples into this rank's micro-batches."""

    components: Components
    budget: TrainingBudget

    def items(self, samples: Rollout, iteration: int) -> UpdateItems | None:
        """The training items of samples; None where this rank has none of the minibatch: no sample,
        or, of a tree that is pruned, none with an edge of its own.
        """
        if not len(samples):
            return None
        components, seed = self.components, self.budget.seed
        items: UpdateItems = components.algo.training_items(
            samples, components.model, seed=seed, iteration=iteration
        )
        return items if len(items) else None

    def starts(self, items: UpdateItems) -> range:
        """Where this rank's micro-batches begin in its items."""
        return self.components.hardware.own_passes(items.starts(self.budget.micro_batch))

    def own(self, items: UpdateItems | None) -> Iterator[Batch | TokenBatch]:
        """This rank's micro-batches of its items."""
        if items is None:
            return iter(())
        return items.split(self.budget.micro_batch, self.starts(items))

    def padded(
        self, items: UpdateItems | None, samples: Rollout, iteration: int
    ) -> Iterator[tuple[Any, bool]]:
        """This rank's micro-batches; and padding, with `False`, where another rank has more."""

        def padding() -> Any:
            if items is not None and hardware.divides_passes:
                return next(items.split(self.budget.micro_batch))
            spare = None if samples.all_ranks is None else samples.all_ranks.padding
            return None if spare is None else next(self.own(self.items(spare, iteration)))

        hardware, counter = self.components.hardware, self.components.model.evaluations
        try:
            for batch, counts in hardware.pad_micro_batches(self.own(items), padding):
                counter.is_padding = not counts
                yield batch, counts
        finally:
            counter.is_padding = False
