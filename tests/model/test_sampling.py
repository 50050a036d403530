from collections.abc import Callable

import pytest
import torch

from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.model.sampling import sample

SIGMAS = uniform_sigmas(5, 3.0)
START = torch.randn(3, 1, 2, 2, generator=torch.Generator().manual_seed(0))
NOISE = torch.randn(3, 2, 1, 2, 2, generator=torch.Generator().manual_seed(1))

MakeModel = Callable[..., ImageModel]


def test_without_a_window_it_is_the_ode(linear: MakeModel) -> None:
    model = linear()
    condition = model.encode(["a", "b", "c"])
    latents, kept = sample(model, condition, START, SIGMAS)
    x = START
    for t, t_next in zip(SIGMAS[:-1], SIGMAS[1:], strict=True):
        x = x + model.predict(x, t.expand(3), condition) * (t_next - t)
    assert kept is None
    assert model.evaluations == 2 * 5
    assert not latents.requires_grad
    torch.testing.assert_close(latents, x.detach())


def test_a_window_is_what_is_stochastic_and_kept(linear: MakeModel) -> None:
    model, dynamics = linear(), FlowSDE(noise_level=0.7)
    condition = model.encode(["a", "b", "c"])
    latents, kept = sample(
        model, condition, START, SIGMAS, dynamics=dynamics, window=[0, 3], step_noise=NOISE
    )
    assert kept is not None
    assert kept.x.shape == kept.next.shape == (3, 2, 1, 2, 2)
    assert kept.t[0].tolist() == SIGMAS[[0, 3]].tolist()
    assert kept.t_next[0].tolist() == SIGMAS[[1, 4]].tolist()
    assert torch.equal(kept.x[:, 0], START)
    for column in range(2):
        t, t_next, x = kept.t[:, column], kept.t_next[:, column], kept.x[:, column]
        v = model.predict(x, t, condition)
        drawn = dynamics.step(x, v, t, t_next, noise=NOISE[:, column])
        assert torch.equal(kept.next[:, column], drawn.next)
        assert torch.equal(kept.log_prob[:, column], drawn.log_prob)
    # between and after the window: Euler's steps from what was kept
    x = kept.next[:, 0]
    for i in (1, 2):
        v = model.predict(x, SIGMAS[i].expand(3), condition)
        x = ODE(model.forward_process).step(x, v, SIGMAS[i].expand(3), SIGMAS[i + 1].expand(3)).next
    assert torch.equal(x, kept.x[:, 1])
    last = model.predict(kept.next[:, 1], SIGMAS[4].expand(3), condition)
    torch.testing.assert_close(latents, kept.next[:, 1] - SIGMAS[4] * last)


def test_samples_do_not_depend_on_their_neighbours(linear: MakeModel) -> None:
    model = linear()

    def draw(rows: slice) -> torch.Tensor:
        return sample(
            model,
            model.encode(["a"] * len(START[rows])),
            START[rows],
            SIGMAS,
            dynamics=FlowSDE(),
            window=[1, 2],
            step_noise=NOISE[rows],
        )[0]

    torch.testing.assert_close(draw(slice(1, 2)), draw(slice(0, 3))[1:2])


def test_a_window_without_its_noise_is_an_error(linear: MakeModel) -> None:
    model = linear()
    condition = model.encode(["a", "b", "c"])
    with pytest.raises(ValueError, match="step_noise"):
        sample(model, condition, START, SIGMAS, dynamics=FlowSDE(), window=[1])
    with pytest.raises(ValueError, match="dynamics"):
        sample(model, condition, START, SIGMAS, window=[1], step_noise=NOISE)
