"""What both solvers share: their order, their ends, and independence of the batch."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from rlfactory.dynamics.dpm_solver import DPMSolver
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.ops.forward_process import ForwardProcess, RectifiedFlow, VariancePreserving
from rlfactory.dynamics.ops.solver import Solver
from rlfactory.dynamics.sa_solver import SASolver
from rlfactory.dynamics.schedule import Leading, uniform_sigmas

PROCESSES: list[ForwardProcess] = [RectifiedFlow(), VariancePreserving.scaled_linear()]
MAKERS: list[Callable[[ForwardProcess], Solver]] = [
    DPMSolver,
    partial(DPMSolver, order=1),
    SASolver,
    partial(SASolver, corrector_order=0),
    partial(SASolver, predictor_order=1, corrector_order=1),
    partial(SASolver, low=0.0, high=1.0, tau=1.0),
]
START = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=PROCESSES, ids=lambda process: process.name)
def process(request: pytest.FixtureRequest) -> ForwardProcess:
    chosen: ForwardProcess = request.param
    return chosen


def schedule(process: ForwardProcess, steps: int) -> Tensor:
    return uniform_sigmas(steps, 3.0) if process.name == "flow" else Leading().sigmas(1.0, steps)


def generators(seeds: list[int]) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def variance(process: ForwardProcess, t: Tensor, data: float) -> Tensor:
    alpha, sigma = process.alpha_sigma(t)
    return alpha**2 * data**2 + sigma**2


def gaussian(process: ForwardProcess, data: float) -> Callable[[Tensor, Tensor], Tensor]:
    """A perfect network for data N(0, data^2): the expected x0 is linear in x."""

    def predict(x: Tensor, t: Tensor) -> Tensor:
        column = t.view(-1, 1, 1, 1)
        alpha, sigma = process.alpha_sigma(column)
        x0 = alpha * data**2 / variance(process, column, data) * x
        eps = (x - alpha * x0) / sigma
        return process.target(x0, eps, t)

    return predict


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_samples_are_finite_from_pure_noise_to_a_pure_sample(
    process: ForwardProcess, make: Callable[[ForwardProcess], Solver], steps: int
) -> None:
    asked = []

    def predict(x: Tensor, t: Tensor) -> Tensor:
        assert t.shape == (3,)
        asked.append(t[0].item())
        return (0.3 * x).half()

    times = schedule(process, steps)
    found = make(process).solve(predict, START, times, generators([0, 1, 2]))
    assert found.shape == START.shape
    assert found.dtype == torch.float32
    assert torch.isfinite(found).all()
    assert asked == times[:-1].tolist()


@pytest.mark.parametrize("make", MAKERS)
def test_a_sample_does_not_depend_on_its_neighbours(
    process: ForwardProcess, make: Callable[[ForwardProcess], Solver]
) -> None:
    predict, times = gaussian(process, 0.5), schedule(process, 8)
    whole = make(process).solve(predict, START, times, generators([4, 5, 6]))
    one = make(process).solve(predict, START[1:2], times, generators([5]))
    torch.testing.assert_close(one, whole[1:2])
    # generators are counters: a second draw from fresh ones is the same
    again = make(process).solve(predict, START, times, generators([4, 5, 6]))
    assert torch.equal(again, whole)


@pytest.mark.parametrize("make", MAKERS)
def test_a_known_sample_is_found_from_its_noise(
    process: ForwardProcess, make: Callable[[ForwardProcess], Solver]
) -> None:
    # with x0 always predicted right, every solver ends on it: there is nothing to extrapolate
    x0, eps = torch.randn(2, 3, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    times = schedule(process, 6)

    def predict(x: Tensor, t: Tensor) -> Tensor:
        alpha, sigma = process.alpha_sigma(t.view(-1, 1, 1, 1))
        return process.target(x0, (x - alpha * x0) / sigma, t)

    start = process.noise(x0, eps, times[:1].expand(3))
    found = make(process).solve(predict, start, times, generators([0, 1, 2]))
    _, left = process.alpha_sigma(times[-1])
    residue = (found - process.alpha_sigma(times[-1])[0] * x0).abs().max().item()
    assert residue <= 4 * left.item() + 1e-4


def test_first_order_is_the_ode(process: ForwardProcess) -> None:
    predict, times, x = gaussian(process, 0.5), schedule(process, 10), START
    for t, t_next in zip(times[:-1], times[1:], strict=True):
        now, then = t.expand(3), t_next.expand(3)
        x = ODE(process).step(x, predict(x, now), now, then).next
    for solver in (
        DPMSolver(process, order=1),
        SASolver(process, tau=0.0, predictor_order=1, corrector_order=0),
    ):
        found = solver.solve(predict, START, times, generators([0, 1, 2]))
        torch.testing.assert_close(found, x, rtol=1e-4, atol=1e-5)


# The exact ODE scales x by the marginal's deviation. When steps double, the error of a method of
# order k falls 2^k times.
@pytest.mark.parametrize(
    ("make", "order"),
    [
        (DPMSolver, 2),
        (partial(DPMSolver, order=1), 1),
        (partial(SASolver, tau=0.0), 2),
        (partial(SASolver, tau=0.0, corrector_order=0), 2),
        (partial(SASolver, tau=0.0, predictor_order=1, corrector_order=0), 1),
    ],
)
def test_the_order_of_convergence(
    process: ForwardProcess, make: Callable[[ForwardProcess], Solver], order: int
) -> None:
    data, errors = 0.5, []
    predict = gaussian(process, data)
    for steps in (20, 40, 80):
        times = torch.linspace(0.9, 0.26, steps + 1)  # whole timesteps, as a table needs
        ends = variance(process, times[[0, -1]], data).sqrt()
        found = make(process).solve(predict, START, times, generators([0, 1, 2]))
        errors.append((found - START * ends[1] / ends[0]).abs().max().item())
    for coarse, fine in zip(errors[:-1], errors[1:], strict=True):
        assert math.log2(coarse / fine) == pytest.approx(order, abs=0.2)


@pytest.mark.parametrize("tau", [0.4, 1.0])
def test_new_noise_keeps_the_variance_of_the_data(process: ForwardProcess, tau: float) -> None:
    data, count = 0.5, 40
    times = schedule(process, 200)
    drawn = torch.randn(count, 1, 20, 20, generator=torch.Generator().manual_seed(0))
    start = drawn * variance(process, times[0], data).sqrt()
    solver = SASolver(process, tau=tau, low=0.05, high=0.95)
    predict = gaussian(process, data)
    found = solver.solve(predict, start, times, generators(list(range(count))))
    still = SASolver(process, tau=0.0).solve(predict, start, times, generators([0]))
    expected = variance(process, times[-1], data).item()
    assert found.var().item() == pytest.approx(expected, rel=0.03)
    assert still.var().item() == pytest.approx(expected, rel=0.03)
    # and it is new noise: with tau 1 little of the starting point is left
    kept = (found * still).mean().item() / expected
    assert kept < (0.9 if tau < 1 else 0.5)
