from typing import Any

import pytest
import torch
from diffusers import SASolverScheduler
from torch import Tensor

from rlfactory.dynamics.ops.forward_process import ForwardProcess, RectifiedFlow, VariancePreserving
from rlfactory.dynamics.sa_solver import SASolver, halved_last
from rlfactory.dynamics.schedule import diffusers_sigmas, uniform_sigmas

START = torch.randn(1, 2, 4, 4, generator=torch.Generator().manual_seed(0))


def predict(x: Tensor, t: Tensor) -> Tensor:
    """Any smooth function of both."""
    return torch.sin(2 * x) + t.view(-1, 1, 1, 1) * x.mean((1, 2, 3), keepdim=True)


def path_of_diffusers(options: dict[str, Any], tau: float, times: Tensor | None) -> list[Tensor]:
    """What the scheduler asks the network about, and where it ends."""
    scheduler = SASolverScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        tau_func=lambda t: tau,
        **options,
    )
    scheduler.set_timesteps(10)
    scheduler.set_begin_index(0)
    given = scheduler.timesteps / 1000 if times is None else times
    x, path, generator = START, [START], torch.Generator().manual_seed(7)
    for i, timestep in enumerate(scheduler.timesteps):
        out = predict(x, given[i].expand(1))
        x = scheduler.step(out, timestep, x, generator=generator).prev_sample
        path.append(x)
        if i == 0:
            scheduler.last_sample = None  # the authors' own code does not correct the first step
    return path


def our_path(process: ForwardProcess, times: Tensor, tau: float, **options: Any) -> list[Tensor]:
    path = []

    def asked(x: Tensor, t: Tensor) -> Tensor:
        path.append(x)
        return predict(x, t)

    solver = SASolver(process, tau=tau, low=0.0, high=1.0, **options)
    end = solver.solve(asked, START, times, [torch.Generator().manual_seed(7)])
    return [*path, end]


def flow_sigmas() -> Tensor:
    scheduler = SASolverScheduler(use_flow_sigmas=True, flow_shift=3.0)
    scheduler.set_timesteps(10)
    return scheduler.sigmas


ORDERS = [(2, 2), (1, 1), (2, 1), (1, 2)]


@pytest.mark.parametrize(("predictor", "corrector"), ORDERS)
@pytest.mark.parametrize("tau", [0.0, 0.6])
def test_on_a_variance_preserving_process_it_gives_diffusers_numbers(
    predictor: int, corrector: int, tau: float
) -> None:
    orders = {"predictor_order": predictor, "corrector_order": corrector}
    expected = path_of_diffusers(orders, tau, None)
    scheduler = SASolverScheduler()
    scheduler.set_timesteps(10)
    times = torch.cat([scheduler.timesteps / 1000, torch.zeros(1)])
    found = our_path(VariancePreserving.scaled_linear(), times, tau, **orders)
    assert len(found) == len(expected) == 11
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("tau", [0.0, 0.6])
def test_on_a_flow_it_gives_diffusers_numbers(tau: float) -> None:
    times = flow_sigmas()
    flow = {"use_flow_sigmas": True, "prediction_type": "flow_prediction", "flow_shift": 3.0}
    expected = path_of_diffusers(flow, tau, times)
    # diffusers repeats its smallest sigma, we end at 0: all but the last step are the same
    ours_ends = torch.cat([times[:-1], torch.zeros(1)])
    found = our_path(RectifiedFlow(), ours_ends, tau)
    for ours, theirs in zip(found[:-1], expected[:-1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(found[5], START)


def test_noise_is_drawn_by_steps_that_end_within_the_range_alone() -> None:
    times = uniform_sigmas(10, 3.0)  # 1, .96, .92, .875, .82, .75, .67, .56, .43, .25, 0
    active = [i for i in range(10) if 0.3 <= times[i + 1] <= 0.9]
    assert active == [2, 3, 4, 5, 6, 7]

    generator = torch.Generator().manual_seed(3)
    SASolver(RectifiedFlow()).solve(predict, START, times, [generator])
    other = torch.Generator().manual_seed(3)
    for _ in active:
        torch.randn(START.shape[1:], generator=other)
    assert torch.equal(generator.get_state(), other.get_state())
    # where a step begins does not count
    SASolver(RectifiedFlow(), low=0.97, high=1.0).solve(predict, START, times, [generator])
    assert torch.equal(generator.get_state(), other.get_state())


def test_without_tau_it_is_deterministic_and_draws_nothing() -> None:
    times, solver = uniform_sigmas(10, 3.0), SASolver(RectifiedFlow(), tau=0.0, low=0.0, high=1.0)
    one = solver.solve(predict, START, times, [torch.Generator().manual_seed(1)])
    generator = torch.Generator().manual_seed(2)
    before = generator.get_state()
    assert torch.equal(solver.solve(predict, START, times, [generator]), one)
    assert torch.equal(generator.get_state(), before)


def test_the_repair_of_sd3s_tail() -> None:
    times, asked = diffusers_sigmas(5, 3.0), []

    def noting(x: Tensor, t: Tensor) -> Tensor:
        asked.append(t.item())
        return predict(x, t)

    solver = SASolver(RectifiedFlow(), halve_last=True)
    solver.solve(noting, START, times, [torch.Generator()])
    assert asked[:-1] == times[:-2].tolist()
    assert asked[-1] == pytest.approx(times[3].item() / 2)
    assert halved_last(torch.tensor([1.0, 0.0])).tolist() == [1, 0]
