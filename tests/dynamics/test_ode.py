import torch

from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.ops.forward_process import RectifiedFlow, VariancePreserving
from rlfactory.dynamics.schedule import uniform_sigmas


def test_a_constant_velocity_is_followed_exactly() -> None:
    x0, eps = torch.randn(2, 1, 2, 2), torch.randn(2, 1, 2, 2)
    x, sigmas = eps, uniform_sigmas(7, 3.0)
    for t, t_next in zip(sigmas[:-1], sigmas[1:], strict=True):
        x = ODE(RectifiedFlow()).step(x, eps - x0, t.expand(2), t_next.expand(2)).next
    torch.testing.assert_close(x, x0, rtol=0, atol=1e-5)


def test_it_has_no_likelihood_no_deviation_and_no_use_for_noise() -> None:
    x, v = torch.randn(2, 2, 1, 2, 2).unbind()
    t, t_next = torch.tensor([0.75, 0.5]), torch.tensor([0.5, 0.25])
    step = ODE(RectifiedFlow()).step(x, v, t, t_next, noise=torch.randn(x.shape))
    assert step.log_prob is None
    assert torch.equal(step.std, torch.zeros(2, 1, 1, 1))
    assert torch.equal(step.next, x - 0.25 * v)


def test_a_variance_preserving_process_is_followed_by_ddim_without_noise() -> None:
    x, eps = torch.randn(2, 2, 1, 2, 2).unbind()
    t, t_next = torch.tensor([0.981, 0.501]), torch.tensor([0.961, 0.481])
    process = VariancePreserving.scaled_linear()
    a, a_next = process.abar(t).view(2, 1, 1, 1), process.abar(t_next).view(2, 1, 1, 1)
    expected = (a_next / a).sqrt() * x + ((1 - a_next).sqrt() - (a_next / a * (1 - a)).sqrt()) * eps
    step = ODE(process).step(x, eps, t, t_next)
    torch.testing.assert_close(step.next, expected, rtol=1e-4, atol=1e-5)
