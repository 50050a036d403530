"""Drawing samples from an image model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics, Step
from rlfactory.dynamics.dpm_solver import DPMSolver
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.schedule import compressed
from rlfactory.dynamics.solver import Solver
from rlfactory.model.base import ImageModel
from rlfactory.nest import join, take
from rlfactory.rollout import Condition, Transitions


@dataclass(frozen=True)
class Drawing:
    """The steps of a rollout that are drawn at random: which, how, from what noise.

    `steps` count from the first time; `noise` is `[B, len(steps), C, h, w]`. States are stored as
    `dtype` and go on from what was stored, so that a replay begins where the step did. `tail` is
    the share of the steps after the last drawn one that is taken, by a solver of second order
    (MixGRPO-Flash); None: all of them, by the ODE.
    """

    dynamics: Dynamics
    steps: Sequence[int]
    noise: Tensor
    keeps_mean: bool = False
    dtype: torch.dtype = torch.float32
    tail: float | None = None


@torch.no_grad()
def follow(model: ImageModel, condition: Condition, x: Tensor, times: Tensor) -> Tensor:
    """The ODE of the model, from `x` `[B, C, h, w]` at the first of `times` to the last."""
    ode = ODE(model.forward_process)
    for t, t_next in zip(times[:-1], times[1:], strict=True):
        now, then = _rows(t, x), _rows(t_next, x)
        x = ode.step(x, model.predict(x, now, condition), now, then).next
    return x


@torch.no_grad()
def solve(
    model: ImageModel,
    condition: Condition,
    x: Tensor,
    times: Tensor,
    solver: Solver,
    generators: Sequence[torch.Generator] = (),
) -> Tensor:
    """The same by a multi-step `solver`; a stochastic one draws from a generator a sample."""

    def predict(x: Tensor, t: Tensor) -> Tensor:
        return model.predict(x, t, condition)

    return solver.solve(predict, x, times, generators)


@torch.no_grad()
def wander(
    model: ImageModel,
    condition: Condition,
    x: Tensor,
    times: Tensor,
    dynamics: Dynamics,
    noise: Tensor,
) -> Tensor:
    """Latents at the last of `times`, every step drawn with its `noise` `[B, n, C, h, w]`, none of
    them kept.
    """
    for t, t_next, eps in zip(times[:-1], times[1:], noise.unbind(1), strict=True):
        now, then = _rows(t, x), _rows(t_next, x)
        before, prediction = x, model.predict(x, now, condition)
        x = dynamics.step(x, prediction, now, then, noise=eps).next
    if dynamics.decode == "x0":
        return model.forward_process.to_x0(before, prediction, now)
    return x


@torch.no_grad()
def walk(
    model: ImageModel, condition: Condition, x: Tensor, times: Tensor, drawing: Drawing
) -> tuple[Tensor, Transitions]:
    """Latents at the last of `times`, and the steps that were drawn; the others follow the ODE."""
    kept: list[Transitions] = []
    at = 0
    for i, noise in zip(drawing.steps, drawing.noise.unbind(1), strict=True):
        x = _stored(follow(model, condition, x, times[at : i + 1]), drawing.dtype)
        t, t_next, at = _rows(times[i], x), _rows(times[i + 1], x), i + 1
        prediction = model.predict(x, t, condition)
        step = _draw(drawing, x, prediction, t, t_next, noise)
        kept.append(_transition(drawing, x, t, t_next, step))
        shows_x0 = at == len(times) - 1 and drawing.dynamics.decode == "x0"
        x = model.forward_process.to_x0(x, prediction, t) if shows_x0 else step.next
    if drawing.tail is not None and at < len(times) - 1:
        tail = compressed(times, at, drawing.tail)[at:]
        return solve(model, condition, x, tail, DPMSolver(model.forward_process)), _stack(kept)
    return follow(model, condition, x, times[at:]), _stack(kept)


@torch.no_grad()
def branch(
    model: ImageModel,
    condition: Condition,
    starts: Tensor,
    times: Tensor,
    drawing: Drawing,
    branches: int,
) -> tuple[Tensor, Transitions]:
    """As `walk`, but `branches` samples grow from each of `starts` `[S, C, h, w]`: what comes
    before the first step that is drawn is computed once for them. `condition` has a row a sample.
    """
    first = drawing.steps[0]
    x = follow(model, _every(condition, branches), starts, times[: first + 1])
    steps = [i - first for i in drawing.steps]
    grown = x.repeat_interleave(branches, 0)
    return walk(model, condition, grown, times[first:], replace(drawing, steps=steps))


@torch.no_grad()
def branch_at_each(
    model: ImageModel,
    condition: Condition,
    starts: Tensor,
    times: Tensor,
    drawing: Drawing,
    branches: int,
) -> tuple[Tensor, Transitions]:
    """`branches` samples for each of T drawn steps of each of `starts` (TempFlow-GRPO): each
    follows the ODE but for that one step, so its reward is the step's own.

    Rows run over starts, then steps, then branches; `drawing.noise` is `[S T branches, 1, ...]`.
    """
    each = len(drawing.steps) * branches
    grid = torch.arange(len(starts) * each).view(len(starts), len(drawing.steps), branches)
    stems, x, at = _every(condition, each), starts, 0
    parts, order = [], []
    for i, rows in zip(drawing.steps, grid.unbind(1), strict=True):
        x, at = follow(model, stems, x, times[at : i + 1]), i
        order.append(rows.flatten())
        own = replace(drawing, steps=[0], noise=take(drawing.noise, order[-1]))
        grown = x.repeat_interleave(branches, 0)
        parts.append(walk(model, take(condition, order[-1]), grown, times[i:], own))
    back = torch.cat(order).argsort()
    latents, kept = (join(column) for column in zip(*parts, strict=True))
    return take(latents, back), take(kept, back)


def _every(condition: Condition, n: int) -> Condition:
    """Every n-th row, from the first on."""
    rows = len(next(iter(condition.tensors.values())))
    return take(condition, torch.arange(0, rows, n))


def _draw(
    drawing: Drawing, x: Tensor, prediction: Tensor, t: Tensor, t_next: Tensor, noise: Tensor
) -> Step:
    """A step, as a replay from what is stored finds it."""
    step = drawing.dynamics.step(x, prediction, t, t_next, noise=noise)
    if drawing.dtype == step.next.dtype:
        return step
    stored = _stored(step.next, drawing.dtype)
    return drawing.dynamics.step(x, prediction, t, t_next, next=stored)


def _stored(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` after a round trip through `dtype`."""
    return x.to(dtype).float()


def _transition(drawing: Drawing, x: Tensor, t: Tensor, t_next: Tensor, step: Step) -> Transitions:
    if step.log_prob is None:
        raise ValueError("steps that are learned from need dynamics with a log-probability")
    mean = step.mean if drawing.keeps_mean else None
    dtype = drawing.dtype
    return Transitions(t, t_next, x.to(dtype), step.next.to(dtype), step.log_prob, mean)


def _stack(kept: Sequence[Transitions]) -> Transitions:
    """Steps of `[B, ...]` each as one of `[B, T, ...]`."""

    def column(name: str) -> Tensor:
        return torch.stack([getattr(part, name) for part in kept], dim=1)

    return Transitions(
        t=column("t"),
        t_next=column("t_next"),
        x=column("x"),
        next=column("next"),
        log_prob=column("log_prob"),
        mean=None if kept[0].mean is None else column("mean"),
    )


def _rows(t: Tensor, x: Tensor) -> Tensor:
    """One time for each row of `x`."""
    return t.expand(len(x)).to(x.device)
