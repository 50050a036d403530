"""What the behaviour policy says of samples, asked before the policy moves away from it."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlfactory.algo.base import Algorithm
from rlfactory.model.base import ImageModel
from rlfactory.model.text import TextModel
from rlfactory.rollout import Rollout


@torch.no_grad()
def remembered(
    algo: Algorithm[Any, Any, Any],
    model: ImageModel | TextModel,
    rollout: Rollout,
    samples: Tensor,
    *,
    micro_batch: int,
    seed: int,
    iteration: int,
) -> Rollout:
    """The rollout with `old` scores `[B, T]` of some of its `samples`, NaN for the others.

    The items are those that learning will see: their noise depends on keys alone.
    """
    if not len(samples):
        with model.weights(algo.behaviour):  # other processes enter it too, and divide the network
            return rollout
    items = algo.items(rollout[samples], model, seed=seed, iteration=iteration)
    with model.weights(algo.behaviour):
        scores = torch.cat([algo.scores(model, batch) for batch in items.split(micro_batch)])
    old = scores.new_full((len(rollout), items.t.shape[1]), torch.nan)
    old[samples.to(old.device)] = scores.view(len(samples), -1)
    return replace(rollout, old=old)
