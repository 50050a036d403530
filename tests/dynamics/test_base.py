import importlib
import inspect
import math
import pkgutil
from typing import Any

import pytest
import torch
from torch import Tensor

import rlfactory.dynamics
from rlfactory.dynamics.base import Dynamics, gaussian_log_prob
from rlfactory.dynamics.ops.forward_process import ForwardProcess, RectifiedFlow, VariancePreserving
from rlfactory.dynamics.schedule import Leading, uniform_sigmas

for _module in pkgutil.iter_modules(rlfactory.dynamics.__path__):
    importlib.import_module(f"rlfactory.dynamics.{_module.name}")
KINDS = [kind for kind in Dynamics.__subclasses__() if kind.__module__.startswith("rlfactory.")]

SIGMAS = {"flow": uniform_sigmas(6, 3.0), "vp": Leading().sigmas(1.0, 6)}
PROCESSES: list[ForwardProcess] = [RectifiedFlow(), VariancePreserving.scaled_linear()]
CASES = [(k, p) for k in KINDS for p in PROCESSES if k.process in (p.name, None)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].__name__}-{case[1].name}")
def case(request: pytest.FixtureRequest) -> tuple[type[Dynamics], ForwardProcess]:
    chosen: tuple[type[Dynamics], ForwardProcess] = request.param
    return chosen


@pytest.fixture
def dynamics(case: tuple[type[Dynamics], ForwardProcess]) -> Dynamics:
    kind, process = case
    takes: Any = {"process": process} if "process" in inspect.signature(kind).parameters else {}
    return kind(**takes)


def times_at(i: int, name: str) -> tuple[Tensor, Tensor]:
    return SIGMAS[name][i].expand(4), SIGMAS[name][i + 1].expand(4)


def states(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    drawn = torch.randn(3, 4, 2, 3, 3, generator=torch.Generator().manual_seed(seed))
    x, v, noise = drawn.unbind()
    return x, v, noise


@pytest.fixture(params=range(6))
def times(
    request: pytest.FixtureRequest, case: tuple[type[Dynamics], ForwardProcess]
) -> tuple[Tensor, Tensor]:
    return times_at(request.param, case[1].name)


def test_traits_are_declared(dynamics: Dynamics) -> None:
    assert dynamics.has_log_prob in (True, False)
    assert dynamics.process in ("flow", "vp", None)
    assert dynamics.decode in ("sample", "x0")


def test_shapes_and_finite_values(dynamics: Dynamics, times: tuple[Tensor, Tensor]) -> None:
    x, v, noise = states()
    step = dynamics.step(x, v, *times, noise=noise)
    assert step.next.shape == step.mean.shape == x.shape
    assert step.std.shape == (4, 1, 1, 1)
    assert (step.log_prob is not None) is dynamics.has_log_prob
    for tensor in (step.next, step.mean, step.std, step.log_prob):
        assert tensor is None or (tensor.dtype == torch.float32 and torch.isfinite(tensor).all())


def test_replaying_a_drawn_step_gives_exactly_its_likelihood(
    dynamics: Dynamics, times: tuple[Tensor, Tensor]
) -> None:
    x, v, noise = states()
    drawn = dynamics.step(x, v, *times, noise=noise)
    replayed = dynamics.step(x, v, *times, next=drawn.next)
    assert torch.equal(replayed.mean, drawn.mean)
    assert torch.equal(replayed.next, drawn.next)
    if drawn.log_prob is not None and replayed.log_prob is not None:
        assert torch.equal((replayed.log_prob - drawn.log_prob).exp(), torch.ones(4))


def test_low_precision_is_raised_before_any_arithmetic(
    dynamics: Dynamics, times: tuple[Tensor, Tensor]
) -> None:
    x, v, noise = (tensor.half() for tensor in states())
    low = dynamics.step(x, v, *times, noise=noise.float())
    high = dynamics.step(x.float(), v.float(), *times, noise=noise.float())
    assert torch.equal(low.next, high.next)


def test_rows_do_not_mix(dynamics: Dynamics, times: tuple[Tensor, Tensor]) -> None:
    x, v, noise = states()
    whole = dynamics.step(x, v, *times, noise=noise)
    for i in range(4):
        rows = slice(i, i + 1)
        one = dynamics.step(x[rows], v[rows], times[0][rows], times[1][rows], noise=noise[rows])
        torch.testing.assert_close(one.next, whole.next[rows])


def test_noise_enters_by_the_deviation(dynamics: Dynamics, times: tuple[Tensor, Tensor]) -> None:
    x, v, noise = states()
    step = dynamics.step(x, v, *times, noise=noise)
    torch.testing.assert_close(step.next - step.mean, step.std * noise, rtol=1e-4, atol=1e-5)


def test_the_gradient_reaches_the_prediction(
    dynamics: Dynamics, case: tuple[type[Dynamics], ForwardProcess]
) -> None:
    x, v, noise = states()
    v.requires_grad_(True)
    t, t_next = times_at(1, case[1].name)
    drawn = dynamics.step(x, v.detach(), t, t_next, noise=noise)
    step = dynamics.step(x, v, t, t_next, next=drawn.next)
    (step.mean if step.log_prob is None else step.log_prob).sum().backward()
    assert v.grad is not None
    assert (v.grad != 0).any()


def test_a_stochastic_step_needs_noise_or_a_next_state(
    dynamics: Dynamics, case: tuple[type[Dynamics], ForwardProcess]
) -> None:
    if not dynamics.has_log_prob:
        pytest.skip("deterministic")
    x, v, _ = states()
    with pytest.raises(ValueError, match="noise"):
        dynamics.step(x, v, *times_at(1, case[1].name))


def test_log_density_is_torchs_averaged_over_dimensions() -> None:
    x, mean, _ = states()
    std = torch.tensor([0.1, 0.5, 1.0, 2.0]).view(4, 1, 1, 1)
    expected = torch.distributions.Normal(mean, std).log_prob(x).flatten(1).mean(1)
    torch.testing.assert_close(gaussian_log_prob(x, mean, std), expected)
    assert gaussian_log_prob(x, x, torch.ones(4, 1, 1, 1))[0] == pytest.approx(
        -0.5 * math.log(2 * math.pi)
    )
