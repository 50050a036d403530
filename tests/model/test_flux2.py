"""FLUX.2 klein: its shift by tokens and steps, and guidance that a distilled model has not."""

import math
from pathlib import Path

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu

from rlfactory.dynamics.schedule import Schedule
from rlfactory.model.flux2 import Flux2Klein, empirical_shift
from rlfactory.model.pipelines.noise_levels import noise_levels
from rlfactory.utils.errors import ModelError


@pytest.mark.parametrize("tokens", [16, 1024, 4096, 4300, 4301, 8192])
@pytest.mark.parametrize("steps", [4, 10, 50, 200])
def test_the_shift_is_that_of_the_published_code(tokens: int, steps: int) -> None:
    expected = math.exp(compute_empirical_mu(tokens, steps))
    assert empirical_shift(tokens, steps) == pytest.approx(expected, rel=1e-6)


def test_noise_levels_follow_the_number_of_steps(flux2_folder: Path) -> None:
    model = Flux2Klein(torch.device("cpu"), path=str(flux2_folder), size=64, text_tokens=128)
    assert model.resolution.shape == (16, 4, 4)
    schedule = Schedule(kind="uniform", steps=4)
    second = [noise_levels(schedule, model.resolution, steps)[steps // 2] for steps in (4, 40)]
    shifts = [empirical_shift(16, steps) for steps in (4, 40)]
    assert [float(x) for x in second] == pytest.approx([s / (s + 1) for s in shifts], rel=1e-5)


def test_a_shift_that_is_not_dynamic_is_the_schedulers(flux2_folder: Path) -> None:
    model = Flux2Klein(torch.device("cpu"), path=str(flux2_folder), size=64, text_tokens=128)
    model.pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    assert [model.resolution_of(64).shift_of(steps) for steps in (4, 40)] == [3.0, 3.0]


def test_a_distilled_model_has_no_guidance(flux2_folder: Path, tmp_path: Path) -> None:
    index = (flux2_folder / "model_index.json").read_text()
    folder = tmp_path / "distilled"
    folder.mkdir()
    for path in flux2_folder.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "model_index.json").unlink()
    changed = index.replace('"is_distilled": false', '"is_distilled": true')
    assert changed != index
    (folder / "model_index.json").write_text(changed)
    options = {"path": str(folder), "size": 64, "text_tokens": 128}
    with pytest.raises(ModelError, match=r"model\.guidance=4: .* type model\.guidance=1"):
        Flux2Klein(torch.device("cpu"), guidance=4.0, **options)
    assert Flux2Klein(torch.device("cpu"), **options).guidance == 1.0


def test_guidance_goes_from_the_empty_prompt_alone(flux2_folder: Path) -> None:
    options = {"path": str(flux2_folder), "size": 64, "text_tokens": 128, "guidance": 2.0}
    with pytest.raises(ModelError, match=r"model\.negative_prompt='stars'"):
        Flux2Klein(torch.device("cpu"), negative_prompt="stars", **options)
