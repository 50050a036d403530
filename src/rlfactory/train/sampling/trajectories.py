"""Trajectories from noise to latents: by the ODE, by a solver, or with stochastic steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics, Step
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.ops.solver import Solver
from rlfactory.dynamics.schedule import compress_tail
from rlfactory.dynamics.window import All, Window
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Condition, Transitions
from rlfactory.utils.pytree import concat, index_rows, row_chunks, to_device


@dataclass(frozen=True)
class RolloutSpec:
    """How the trajectories of a rollout are drawn whose single steps are learned from.

    Attributes:
        dynamics: takes the stochastic steps, which are stored; the others follow the ODE.
        steps: their numbers, from 0 at the first noise level; in a sampler those of `steps_of`.
        noise: `[B, len(steps), C, h, w]`.
        window: chooses the steps of an iteration.
        branches: the number of samples that share their start and the steps before the window.
        branch_at: with `step`, each step of the window has its own branches; with `tree`, samples
            are the leaves of trees.
        splits: the sampling steps in which each node of a tree gets children, all equally many.
        noise_scale: factor on the noise of these steps, which their log-probability leaves out.
        mean: whether the means of the steps are stored.
        dtype: the type of stored states. The trajectory continues from a state as it was stored, so
            that a replay begins where the step did.
        tail: the share of the steps after the last stochastic one that is taken, by a second-order
            solver (MixGRPO-Flash); None: all of them, by the ODE.
        max_rows: the most samples in a pass of the network after the branches; None: all.
    """

    dynamics: Dynamics
    steps: Sequence[int] = ()
    noise: Tensor = torch.empty(0)
    window: Window = field(default_factory=All)
    branches: int = 1
    branch_at: Literal["window", "step", "tree"] = "window"
    splits: Sequence[int] = ()
    noise_scale: float = 1.0
    mean: bool = False
    dtype: torch.dtype = torch.float32
    tail: float | None = None
    max_rows: int | None = None

    def steps_of(self, total: int, *, seed: int, iteration: int) -> list[int]:
        """The stochastic steps of an iteration: those of the window, and those that split."""
        steps = self.window.steps(total, seed=seed, iteration=iteration)
        return sorted({*steps, *self.splits}) if self.branch_at == "tree" else steps


def integrate_ode(model: ImageModel, condition: Condition, x: Tensor, times: Tensor) -> Tensor:
    """The latents at the last of `times`, by the model's ODE, a step per interval; see
    `integrate`.
    """
    return integrate(model, condition, x, times, ODE(model.forward_process))


@torch.no_grad()
def integrate(
    model: ImageModel,
    condition: Condition,
    x: Tensor,
    times: Tensor,
    dynamics: Dynamics,
    noise: Tensor | None = None,
    on_state: Callable[[int, Tensor], None] | None = None,
) -> Tensor:
    """The latents at the last of `times`, one step per interval; none is stored.

    Args:
        x: `[B, C, h, w]` at the first of `times`.
        times: noise levels `[n + 1]`.
        dynamics: takes the steps.
        noise: of stochastic steps, `[B, n, C, h, w]`; None: they are deterministic.
        on_state: called with the number of each step, from 0, and the state before it.
    """
    times = to_device(times, x.device)  # once, rather than two copies a step
    noises = [None] * (len(times) - 1) if noise is None else noise.unbind(1)
    for step, (t, t_next, eps) in enumerate(zip(times[:-1], times[1:], noises, strict=True)):
        if on_state is not None:
            on_state(step, x)
        now, then = t.expand(len(x)), t_next.expand(len(x))
        before, prediction = x, model.predict(x, now, condition)
        x = dynamics.step(x, prediction, now, then, noise=eps).next
    if dynamics.decode == "x0":
        return model.forward_process.to_x0(before, prediction, now)
    return x


@torch.no_grad()
def integrate_with_solver(
    model: ImageModel,
    condition: Condition,
    x: Tensor,
    times: Tensor,
    solver: Solver,
    generators: Sequence[torch.Generator] = (),
) -> Tensor:
    """Integrate by a multi-step solver; a stochastic one has one generator per sample."""
    return solver.solve(lambda x, t: model.predict(x, t, condition), x, times, generators)


@torch.no_grad()
def sample_with_transitions(
    model: ImageModel, condition: Condition, x: Tensor, times: Tensor, spec: RolloutSpec
) -> tuple[Tensor, Transitions]:
    """The latents at the last of `times`, and the stochastic steps; the others follow the ODE."""
    transitions: list[Transitions] = []
    at, schedule = 0, times
    times = to_device(times, x.device)
    for i, noise in zip(spec.steps, spec.noise.unbind(1), strict=True):
        x = stored(integrate_ode(model, condition, x, times[at : i + 1]), spec.dtype)
        t, t_next, at = times[i].expand(len(x)), times[i + 1].expand(len(x)), i + 1
        prediction = model.predict(x, t, condition)
        step = draw(spec, x, prediction, t, t_next, noise)
        transitions.append(transition(spec, x, t, t_next, step))
        shows_x0 = at == len(times) - 1 and spec.dynamics.decode == "x0"
        x = model.forward_process.to_x0(x, prediction, t) if shows_x0 else step.next
    return integrate_tail(model, condition, x, schedule, at, spec.tail), stack(transitions)


def integrate_tail(
    model: ImageModel, condition: Condition, x: Tensor, times: Tensor, at: int, share: float | None
) -> Tensor:
    """The latents at the last of `times`, from `x` before step `at`, without stochastic steps.

    `share` is that of the steps that is taken, by a solver; None: all of them, by the ODE.
    """
    if share is None or at >= len(times) - 1:
        return integrate_ode(model, condition, x, times[at:])
    from rlfactory.dynamics.dpm_solver import DPMSolver  # not imported where no tail is cut

    # it computes its coefficients from the times on the CPU
    tail = compress_tail(times, at, share)[at:]
    return integrate_with_solver(model, condition, x, tail, DPMSolver(model.forward_process))


@torch.no_grad()
def sample_branched(
    model: ImageModel, condition: Condition, starts: Tensor, times: Tensor, spec: RolloutSpec
) -> tuple[Tensor, Transitions]:
    """`sample_with_transitions` with `spec.branches` samples from each of `starts` `[S, C, h, w]`,
    or with `branch_at=step` so many for each of T stochastic steps (TempFlow-GRPO).

    Such a sample follows the ODE except for its one step, so its reward is that step's. The steps
    before are computed once for all. Rows, of which `condition` has one each, are ordered by start,
    then step, then branch; the noise is then `[S * T * branches, 1, C, h, w]`.
    """
    branches, at, x = spec.branches, 0, starts
    steps_of = [[i] for i in spec.steps] if spec.branch_at == "step" else [spec.steps]
    per_start = len(steps_of) * branches
    grid = torch.arange(len(starts) * per_start).view(len(starts), -1, branches)
    start_condition, results = index_rows(condition, grid[:, 0, 0]), []
    for steps, rows in zip(steps_of, grid.unbind(1), strict=True):
        # the ODE from the step before is shared by all later steps
        x, at = integrate_ode(model, start_condition, x, times[at : steps[0] + 1]), steps[0]
        own, part = condition, replace(spec, steps=[i - at for i in steps])
        if len(steps_of) > 1:
            own = index_rows(condition, rows.flatten())
            part = replace(part, noise=index_rows(spec.noise, rows.flatten()))
        branched = x.repeat_interleave(branches, 0)
        results.append(_sample_in_slices(model, own, branched, times[at:], part))
    if len(results) == 1:
        return results[0]
    back = grid.transpose(0, 1).flatten().argsort()  # from the order of steps to that of samples
    latents, transitions = (concat(column) for column in zip(*results, strict=True))
    return index_rows(latents, back), index_rows(transitions, back)


def _sample_in_slices(
    model: ImageModel, condition: Condition, x: Tensor, times: Tensor, spec: RolloutSpec
) -> tuple[Tensor, Transitions]:
    """`sample_with_transitions` of at most `spec.max_rows` samples at once."""
    size = spec.max_rows or len(x)
    if len(x) <= size:
        return sample_with_transitions(model, condition, x, times, spec)
    results = []
    for rows in row_chunks(len(x), size):
        own = index_rows(condition, rows), index_rows(x, rows)
        part = replace(spec, noise=index_rows(spec.noise, rows))
        results.append(sample_with_transitions(model, *own, times, part))
    latents, transitions = (concat(column) for column in zip(*results, strict=True))
    return latents, transitions


def draw(
    spec: RolloutSpec, x: Tensor, prediction: Tensor, t: Tensor, t_next: Tensor, noise: Tensor
) -> Step:
    """A stochastic step, with the log-probability of the next state as it is stored."""
    step = spec.dynamics.step(x, prediction, t, t_next, noise=noise)
    if spec.dtype == step.next.dtype:
        return step
    # rounding moved the next state, so its log-probability is computed anew, as a replay would
    rounded = stored(step.next, spec.dtype)
    return spec.dynamics.step(x, prediction, t, t_next, next=rounded)


def stored(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` as it is after it was stored."""
    return x.to(dtype).float()


def transition(spec: RolloutSpec, x: Tensor, t: Tensor, t_next: Tensor, step: Step) -> Transitions:
    if step.log_prob is None:
        raise ValueError("stored transitions need dynamics with a log-probability")
    mean = step.mean if spec.mean else None
    dtype = spec.dtype
    pass_rows = torch.full_like(t, len(x), dtype=torch.int64)
    return Transitions(t, t_next, x.to(dtype), step.next.to(dtype), step.log_prob, mean, pass_rows)


def stack(steps: Sequence[Transitions]) -> Transitions:
    """Transitions `[B, ...]` of T steps as one `[B, T, ...]`."""
    columns = {f.name: [getattr(step, f.name) for step in steps] for f in fields(Transitions)}
    stacked: dict[str, Any] = {
        name: None if column[0] is None else torch.stack(column, dim=1)
        for name, column in columns.items()
    }
    return Transitions(**stacked)
