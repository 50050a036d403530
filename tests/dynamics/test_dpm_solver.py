import torch
from diffusers import DPMSolverMultistepScheduler
from torch import Tensor

from rlfactory.dynamics.dpm_solver import DPMSolver
from rlfactory.dynamics.ops.forward_process import RectifiedFlow, VariancePreserving
from rlfactory.dynamics.schedule import Leading

START = torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(0))


def predict(x: Tensor, t: Tensor) -> Tensor:
    """Any smooth function of both."""
    return torch.sin(2 * x) + t.view(-1, 1, 1, 1) * x.mean((1, 2, 3), keepdim=True)


def test_on_a_flow_it_gives_diffusers_numbers() -> None:
    scheduler = DPMSolverMultistepScheduler(
        use_flow_sigmas=True, prediction_type="flow_prediction", flow_shift=3.0
    )
    scheduler.set_timesteps(10)
    scheduler.set_begin_index(0)  # its timesteps are rounded and can't be looked up
    times, x = scheduler.sigmas, START
    for i, timestep in enumerate(scheduler.timesteps):
        x = scheduler.step(predict(x, times[i].expand(2)), timestep, x).prev_sample
    found = DPMSolver(RectifiedFlow()).solve(predict, START, times, [])
    torch.testing.assert_close(found, x, rtol=1e-4, atol=1e-5)


def test_on_a_variance_preserving_process_it_gives_diffusers_numbers() -> None:
    times = Leading(steps=10).sigmas(1.0)
    scheduler = DPMSolverMultistepScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        final_sigmas_type="sigma_min",
    )
    scheduler.set_timesteps(timesteps=(1000 * times[:-1]).round().int().tolist())
    x = START
    for i, timestep in enumerate(scheduler.timesteps):
        x = scheduler.step(predict(x, times[i].expand(2)), timestep, x).prev_sample
    found = DPMSolver(VariancePreserving.scaled_linear()).solve(predict, START, times, [])
    torch.testing.assert_close(found, x, rtol=1e-4, atol=1e-5)
