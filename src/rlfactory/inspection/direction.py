"""The direction in which good samples differ from bad ones, and how far to trust it."""

import torch
from torch import Tensor


def contrast(states: Tensor, scores: Tensor, groups: Tensor) -> Tensor | None:
    """A direction `[d]` along which good samples lie 1 above bad ones, on average.

    Good and bad of `states` `[B, d]` are those with `scores` `[B]` above and below the mean of
    their prompt, `groups` `[B]`: what differs between prompts is no merit. None if no two differ.
    """
    if not all(rows.any() for rows in _split(scores, groups)):
        return None
    gap = good_less_bad(states, scores, groups)
    return gap / gap.square().sum()


def good_less_bad(values: Tensor, scores: Tensor, groups: Tensor) -> Tensor:
    """The gap `[...]` between the means of `values` `[B, ...]`, each less that of its prompt."""
    good, bad = _split(scores, groups)
    own = centred(values, groups)
    return own[good].mean(0) - own[bad].mean(0)


def separation(states: Tensor, scores: Tensor, groups: Tensor) -> float:
    """How often a good sample lies above a bad one of prompts that had no part in the direction.

    0.5 is chance. Two folds, by prompt; NaN where one of them has no good or no bad samples.
    """
    folds = [_held_out(states, scores, groups, groups % 2 == fold) for fold in (0, 1)]
    return sum(folds) / len(folds)


def centred(values: Tensor, groups: Tensor) -> Tensor:
    """`values` `[B, ...]` less the mean of their group."""
    return values - group_means(values, groups)[groups]


def group_means(values: Tensor, groups: Tensor) -> Tensor:
    """The mean `[G, ...]` of `values` `[B, ...]` in each group; 0 where a group is empty."""
    counts = torch.bincount(groups).clamp(min=1).to(values)
    sums = values.new_zeros(len(counts), *values.shape[1:]).index_add(0, groups, values)
    return sums / counts.view(-1, *[1] * (values.ndim - 1))


def _split(scores: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    own = centred(scores.double(), groups)
    slack = 1e-6 * scores.abs().max().clamp(min=1e-6)
    return own > slack, own < -slack


def _held_out(states: Tensor, scores: Tensor, groups: Tensor, test: Tensor) -> float:
    direction = contrast(states[~test], scores[~test], groups[~test])
    good, bad = _split(scores[test], groups[test])
    if direction is None or not (good.any() and bad.any()):
        return float("nan")
    along = centred(states[test], groups[test]) @ direction
    pairs = along[good][:, None] - along[bad][None]
    return float(((pairs > 0).double() + 0.5 * (pairs == 0).double()).mean())
