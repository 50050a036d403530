"""Trees of trajectories, which share their steps up to where they split (BranchGRPO)."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from rlfactory.dynamics.ode import ODE
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Condition, Transitions, Tree
from rlfactory.train.sampling.trajectories import (
    RolloutSpec,
    draw,
    integrate_tail,
    stack,
    stored,
    transition,
)
from rlfactory.utils.pytree import index_rows, row_chunks, to_device
from rlfactory.utils.sizes import branching_factor


@torch.no_grad()
def sample_tree(
    model: ImageModel, condition: Condition, starts: Tensor, times: Tensor, spec: RolloutSpec
) -> tuple[Tensor, Transitions, Tree]:
    """Draw a tree from each of `starts` `[S, C, h, w]`; its leaves are consecutive samples.

    The network sees each node once. The noise of a step is that of the first leaf below it.

    Args:
        condition: one row per leaf.
        starts: the roots.
        times: noise levels `[n + 1]`.
        spec: the stochastic steps, with those that split among them, noise for each leaf, and how
            many of these there are.

    Returns:
        The latents of the leaves, their transitions with a row for each leaf, and the trees; nodes
        are numbered by rows.
    """
    factor = branching_factor(spec.branches, len(spec.splits))
    below = spec.branches  # leaves below each node of now
    first = torch.arange(0, len(starts) * below, below)  # of each node the first leaf
    x, times_there = starts, to_device(times, starts.device)
    transitions, nodes, ode = [], [first.repeat_interleave(below)], ODE(model.forward_process)
    for i, (t, t_next) in enumerate(pairwise(times_there)):
        if i > spec.steps[-1]:
            break
        if i in spec.steps:
            x = stored(x, spec.dtype)
        prediction = _predict(model, x, t, index_rows(condition, first), spec.max_rows)
        if i not in spec.steps:
            x = ode.step(x, prediction, t.expand(len(x)), t_next.expand(len(x))).next
            continue
        children = factor if i in spec.splits else 1
        below //= children
        # a child begins where its parent is, and needs no prediction of its own
        x, prediction, first = (v.repeat_interleave(children, 0) for v in (x, prediction, first))
        first = first + below * (torch.arange(len(first)) % children)
        now, then = t.expand(len(x)), t_next.expand(len(x))
        step = draw(spec, x, prediction, now, then, _noise(spec, i, first))
        # parents passed the network, in batches that no update has
        taken = replace(transition(spec, x, now, then, step), pass_rows=None)
        # a row for each leaf, as replays and ranks need them
        transitions.append(index_rows(taken, torch.arange(len(first)).repeat_interleave(below)))
        # the node of a leaf is the first leaf that it shares it with
        nodes.append(first.repeat_interleave(below))
        is_last = i == len(times) - 2 and spec.dynamics.decode == "x0"
        x = model.forward_process.to_x0(x, prediction, now) if is_last else step.next
    at = spec.steps[-1] + 1

    def integrate(rows: Tensor) -> Tensor:
        own = index_rows(condition, rows), index_rows(x, rows)
        return integrate_tail(model, *own, times, at, spec.tail)

    latents = _in_slices(integrate, len(x), spec.max_rows)
    stacked = stack(transitions)
    numbers = torch.tensor(spec.steps).expand(len(latents), -1)
    return latents, stacked, Tree(torch.stack(nodes, 1), numbers, stacked.log_prob)


def _noise(spec: RolloutSpec, step: int, first: Tensor) -> Tensor:
    """The noise of a stochastic step, for nodes with the `first` leaves."""
    noise = index_rows(spec.noise[:, spec.steps.index(step)], first)
    return noise * spec.noise_scale if step in spec.splits else noise


def _predict(
    model: ImageModel, x: Tensor, t: Tensor, condition: Condition, size: int | None
) -> Tensor:
    """The network's outputs for `x` at time `t`, in passes of at most `size` rows."""

    def predict(rows: Tensor) -> Tensor:
        part = index_rows(x, rows)
        return model.predict(part, t.expand(len(part)), index_rows(condition, rows))

    return _in_slices(predict, len(x), size)


def _in_slices(compute: Callable[[Tensor], Tensor], count: int, size: int | None) -> Tensor:
    """`compute` of the row numbers 0 to `count - 1`, at most `size` of them at once."""
    return torch.cat([compute(rows) for rows in row_chunks(count, size or count)])
