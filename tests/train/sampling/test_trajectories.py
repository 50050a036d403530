from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.dynamics.cps import CPS
from rlfactory.dynamics.dance_sde import DanceSDE
from rlfactory.dynamics.dpm_solver import DPMSolver
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.schedule import compress_tail, uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.train.sampling.trajectories import (
    RolloutSpec,
    integrate,
    integrate_ode,
    integrate_with_solver,
    sample_branched,
    sample_with_transitions,
)
from rlfactory.utils.pytree import index_rows

SIGMAS = uniform_sigmas(5, 3.0)
START = torch.randn(3, 1, 2, 2, generator=torch.Generator().manual_seed(0))
NOISE = torch.randn(12, 2, 1, 2, 2, generator=torch.Generator().manual_seed(1))
DRAWING = RolloutSpec(FlowSDE(noise_level=0.7), [1, 3], NOISE[:3])

MakeModel = Callable[..., ImageModel]


def times(t: Tensor, x: Tensor) -> Tensor:
    return t.expand(len(x))


def test_following_is_eulers_method(linear: MakeModel) -> None:
    model = linear()
    condition = model.encode(["a", "b", "c"])
    latents = integrate_ode(model, condition, START, SIGMAS)
    x = START
    for t, t_next in zip(SIGMAS[:-1], SIGMAS[1:], strict=True):
        x = x + model.predict(x, times(t, x), condition).detach() * (t_next - t)
    assert not latents.requires_grad
    torch.testing.assert_close(latents, x)


def test_a_walk_keeps_what_is_drawn_and_follows_the_rest(linear: MakeModel) -> None:
    model, dynamics = linear(), DRAWING.dynamics
    condition = model.encode(["a", "b", "c"])
    drawing = replace(DRAWING, steps=[0, 3])
    latents, kept = sample_with_transitions(model, condition, START, SIGMAS, drawing)
    assert kept.x.shape == kept.next.shape == (3, 2, 1, 2, 2)
    assert kept.mean is None
    assert kept.t[0].tolist() == SIGMAS[[0, 3]].tolist()
    assert kept.t_next[0].tolist() == SIGMAS[[1, 4]].tolist()
    assert torch.equal(kept.x[:, 0], START)
    for column in range(2):
        t, t_next, x = kept.t[:, column], kept.t_next[:, column], kept.x[:, column]
        v = model.predict(x, t, condition)
        drawn = dynamics.step(x, v, t, t_next, noise=drawing.noise[:, column])
        assert torch.equal(kept.next[:, column], drawn.next)
        assert torch.equal(kept.log_prob[:, column], drawn.log_prob)
    # between and after the drawn steps: the ODE, from what was kept
    assert torch.equal(integrate_ode(model, condition, kept.next[:, 0], SIGMAS[1:4]), kept.x[:, 1])
    assert torch.equal(integrate_ode(model, condition, kept.next[:, 1], SIGMAS[4:]), latents)


def test_means_are_kept_when_they_are_asked_for(linear: MakeModel) -> None:
    model = linear()
    condition = model.encode(["a", "b", "c"])
    _, kept = sample_with_transitions(model, condition, START, SIGMAS, replace(DRAWING, mean=True))
    assert kept.mean is not None
    t, t_next, x = kept.t[:, 0], kept.t_next[:, 0], kept.x[:, 0]
    step = DRAWING.dynamics.step(
        x, model.predict(x, t, condition), t, t_next, noise=DRAWING.noise[:, 0]
    )
    assert torch.equal(kept.mean[:, 0], step.mean)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_replay_of_what_is_stored_finds_the_same_likelihood(
    dtype: torch.dtype, linear: MakeModel
) -> None:
    model, dynamics = linear(), DRAWING.dynamics
    condition = model.encode(["a", "b", "c"])
    exact, _ = sample_with_transitions(model, condition, START, SIGMAS, DRAWING)
    rounded, kept = sample_with_transitions(
        model, condition, START, SIGMAS, replace(DRAWING, dtype=dtype)
    )
    assert kept.x.dtype == kept.next.dtype == dtype
    for column in range(2):
        t, t_next, x = kept.t[:, column], kept.t_next[:, column], kept.x[:, column].float()
        prediction = model.predict(x, t, condition)
        step = dynamics.step(x, prediction, t, t_next, next=kept.next[:, column].float())
        assert torch.equal(kept.log_prob[:, column], step.log_prob)
    torch.testing.assert_close(rounded, exact, rtol=0.05, atol=0.05)
    assert not torch.equal(rounded, exact)


def test_a_last_step_of_dance_leaves_its_estimate_of_x0(linear: MakeModel) -> None:
    model = linear()
    condition = model.encode(["a", "b", "c"])
    dance = replace(DRAWING, dynamics=DanceSDE(eta=0.3), steps=[2, 4])
    latents, kept = sample_with_transitions(model, condition, START, SIGMAS, dance)
    x, t = kept.x[:, 1], kept.t[:, 1]
    clean = model.forward_process.to_x0(x, model.predict(x, t, condition), t)
    assert torch.equal(latents, clean.detach())
    noisy = replace(dance, dynamics=DanceSDE(eta=0.3, decode="sample"))
    assert torch.equal(
        sample_with_transitions(model, condition, START, SIGMAS, noisy)[0], kept.next[:, 1]
    )


@pytest.mark.parametrize("decode", ["x0", "sample"])
def test_wandering_is_a_walk_of_which_nothing_is_kept(linear: MakeModel, decode: Any) -> None:
    model, dance = linear(), DanceSDE(eta=0.3, decode=decode)
    x, noise, times = torch.randn(3, 1, 2, 2), torch.randn(3, 4, 1, 2, 2), uniform_sigmas(4, 3.0)
    condition = model.encode(["a", "bb", "ccc"])
    walked, _ = sample_with_transitions(
        model, condition, x, times, RolloutSpec(dance, range(4), noise)
    )
    assert torch.equal(integrate(model, condition, x, times, dance, noise), walked)


def test_the_tail_may_be_shortened_by_a_better_solver(linear: MakeModel) -> None:
    model = linear()
    condition = model.encode(["a", "b", "c"])
    sigmas = uniform_sigmas(25, 3.0)
    flash = replace(DRAWING, steps=[0, 1], tail=0.2)
    before = model.calls  # type: ignore[attr-defined]
    latents, kept = sample_with_transitions(model, condition, START, sigmas, flash)
    assert model.calls - before == 2 + int(23 * 0.2)  # type: ignore[attr-defined]
    tail = compress_tail(sigmas, 2, 0.2)[2:]
    solver = DPMSolver(model.forward_process)
    assert torch.equal(
        latents, integrate_with_solver(model, condition, kept.next[:, 1], tail, solver)
    )
    whole, _ = sample_with_transitions(model, condition, START, sigmas, replace(flash, tail=None))
    torch.testing.assert_close(latents, whole, rtol=0.05, atol=0.05)


def test_samples_do_not_depend_on_their_neighbours(linear: MakeModel) -> None:
    model = linear()

    def draw(rows: slice) -> Tensor:
        start = START[rows]
        drawing = replace(DRAWING, noise=NOISE[:3][rows])
        return sample_with_transitions(
            model, model.encode(["a"] * len(start)), start, SIGMAS, drawing
        )[0]

    torch.testing.assert_close(draw(slice(1, 2)), draw(slice(0, 3))[1:2])


def test_branches_share_what_precedes_the_window(linear: MakeModel) -> None:
    model = linear()
    condition = model.encode(["a", "a", "a", "b", "b", "b"])
    starts, drawing = START[:2], replace(DRAWING, steps=[2, 3], noise=NOISE[:6])
    evaluated = model.evaluations.read_and_reset()
    latents, kept = sample_branched(model, condition, starts, SIGMAS, replace(drawing, branches=3))
    evaluated = model.evaluations.read_and_reset()
    assert evaluated.forward == 2 * 2 + 6 * 3, "two steps for the stems, three for the branches"
    expected, each = sample_with_transitions(
        model, condition, starts.repeat_interleave(3, 0), SIGMAS, drawing
    )
    torch.testing.assert_close(latents, expected)
    torch.testing.assert_close([kept.x, kept.next], [each.x, each.next])
    assert torch.equal(kept.x[0, 0], kept.x[2, 0])
    assert not torch.equal(kept.x[0, 0], kept.x[3, 0])
    assert not torch.equal(kept.next[0, 0], kept.next[1, 0])


def test_branches_at_each_step_are_stochastic_in_that_step_alone(linear: MakeModel) -> None:
    model = linear()
    condition = model.encode(["a"] * 6 + ["b"] * 6)
    drawing = replace(DRAWING, steps=[1, 3], noise=NOISE[:, :1])
    branched = replace(drawing, branches=3, branch_at="step")
    latents, kept = sample_branched(model, condition, START[:2], SIGMAS, branched)
    assert kept.t.shape == (12, 1)
    # rows run over starts, then steps, then branches
    assert kept.t[:, 0].tolist() == ([SIGMAS[1]] * 3 + [SIGMAS[3]] * 3) * 2
    for row in range(12):
        step = [1, 3][row // 3 % 2]
        alone = replace(drawing, steps=[step], noise=drawing.noise[row : row + 1])
        start = START[row // 6 : row // 6 + 1]
        one, its = sample_with_transitions(
            model, index_rows(condition, torch.tensor([row])), start, SIGMAS, alone
        )
        torch.testing.assert_close(latents[row], one[0])
        torch.testing.assert_close(kept.log_prob[row], its.log_prob[0])


def test_steps_without_a_likelihood_cannot_be_kept(linear: MakeModel) -> None:
    model = linear()
    condition = model.encode(["a", "b", "c"])
    drawing = replace(DRAWING, dynamics=ODE(model.forward_process))
    with pytest.raises(ValueError, match="log-probability"):
        sample_with_transitions(model, condition, START, SIGMAS, drawing)


def test_a_step_without_noise_has_a_likelihood_where_it_is_quadratic(linear: MakeModel) -> None:
    model = linear()
    condition = model.encode(["a", "b", "c"])
    drawing = replace(DRAWING, dynamics=CPS(noise_level=0.8), steps=[3, 4])
    latents, kept = sample_with_transitions(model, condition, START, SIGMAS, drawing)
    assert torch.isfinite(latents).all()
    assert torch.equal(kept.log_prob[:, 1], torch.zeros(3))
