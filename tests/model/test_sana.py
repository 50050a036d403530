"""SANA: the order of its solver, its times, and its instruction."""

from pathlib import Path

import pytest
import torch
from diffusers import DPMSolverMultistepScheduler, SanaPipeline

from rlfactory.dynamics.dpm_solver import DPMSolver
from rlfactory.dynamics.schedule import Schedule
from rlfactory.model.pipelines.noise_levels import noise_levels
from rlfactory.model.sana import Sana
from rlfactory.train.sampling.trajectories import integrate_ode, integrate_with_solver
from rlfactory.utils.errors import ModelError

PROMPTS = ["a red circle", "two blue stars"]


def opened(folder: Path, **options: object) -> Sana:
    known = {"path": str(folder), "size": 64, "text_tokens": 64, "timesteps": "truncated"}
    return Sana(torch.device("cpu"), **(known | options))


@pytest.mark.parametrize("guidance", [1.0, 4.5])
def test_a_solver_of_second_order_draws_what_the_unchanged_pipeline_draws(
    sana_folder: Path, guidance: float
) -> None:
    model, steps = opened(sana_folder, guidance=guidance), 6
    pipe = SanaPipeline.from_pretrained(sana_folder, dtype={"default": torch.float32})
    pipe.set_progress_bar_config(disable=True)
    assert pipe.scheduler.config.solver_order == 2
    start = torch.randn(2, *model.resolution.shape, generator=torch.Generator().manual_seed(0))
    expected = pipe(
        prompt=[*PROMPTS],
        latents=start,
        num_inference_steps=steps,
        height=64,
        width=64,
        output_type="latent",
        **model.pipeline_arguments(),
    ).images
    times = noise_levels(Schedule(kind="dpm", steps=steps), model.resolution)
    solver, text = DPMSolver(model.forward_process, order=2), model.encode(PROMPTS)
    found = integrate_with_solver(model, text, start, times, solver, [])
    first_order = integrate_ode(model, text, start, times)
    error, other = ((x - expected).norm() / expected.norm() for x in (found, first_order))
    assert error < 3e-6
    assert other > 1e-2


@pytest.mark.parametrize("steps", [*range(1, 61), 100, 250])
def test_noise_levels_and_times_are_its_schedulers(steps: int) -> None:
    scheduler = DPMSolverMultistepScheduler(
        flow_shift=3.0, use_flow_sigmas=True, prediction_type="flow_prediction"
    )
    scheduler.set_timesteps(steps)
    found = Schedule(kind="dpm", steps=steps).sigmas(3.0)
    torch.testing.assert_close(found, scheduler.sigmas, rtol=0, atol=1e-6)
    assert torch.equal((1000 * found[:-1]).long(), scheduler.timesteps)


def test_the_negative_prompt_follows_no_instruction(sana_folder: Path) -> None:
    model = opened(sana_folder, guidance=2.0)
    assert model._negative is not None
    plain, _, negative, mask = model.pipe.encode_prompt(
        [""], negative_prompt="", max_sequence_length=64
    )
    assert torch.equal(model._negative["sequence"], negative)
    assert torch.equal(model._negative["mask"], mask)
    instructed = model.encode([""]).tensors["sequence"]
    assert not torch.allclose(instructed, negative)
    assert not torch.allclose(instructed, plain)


def test_sizes_are_whole_patches(sana_folder: Path) -> None:
    with pytest.raises(ModelError, match="size=60: multiples of 8 are possible"):
        opened(sana_folder, size=60)
    assert opened(sana_folder, size=72).resolution.shape == (8, 9, 9)
