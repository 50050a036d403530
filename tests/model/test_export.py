"""Exports hold the trained weights, bit for bit, when opened by plain diffusers and PEFT."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml
from load_script import load_script
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlfactory.config.overrides import compose
from rlfactory.config.plan import make_plan
from rlfactory.model.base import ImageModel
from rlfactory.model.lora import merge_adapters
from rlfactory.model.pipelines.noise_levels import noise_levels
from rlfactory.run.checkpoint.save import begin_checkpoint
from rlfactory.run.folder import RunFolder
from rlfactory.tools.export.command import ExportOptions, export_run
from rlfactory.train.build import instantiate_group
from rlfactory.train.sampling.trajectories import integrate_ode

FRESH = Path(__file__).with_name("fresh.py")
SMALL = [
    *("recipe=none", "hardware=cpu", "model.size=64", "schedule.steps=3"),
    *("evaluation.size=64", "evaluation.steps=3"),
]
EXACT = ["precision=fp32", "prompt_cache=null"]
FAMILIES = {
    "sd": ["model=sd14"],
    "sd3": ["model=sd35", "model.text_tokens=16", "model.guidance=3.0"],
    "flux": ["model=flux", "model.text_tokens=16"],
}
SHIFTED = {"sd3": "schedule.shift=2.0", "flux": "schedule.shift=3.0"}
FORMS = {"lora": ("lora", False), "merged": ("lora", True), "full": ("full", False)}
Case = tuple[str, str, bool]
CASES: list[Case] = sorted(
    [
        *((family, form, False) for family in FAMILIES for form in FORMS),
        *((family, form, True) for family in SHIFTED for form in ("lora", "full")),
    ]
)
PROMPT = "a red circle"


@dataclass(frozen=True)
class Left:
    """What our own model says of an export, and what the fresh process does."""

    output: Tensor
    latents: Tensor
    found: dict[str, Tensor]


def inputs_of(model: ImageModel) -> dict[str, Tensor]:
    """What the network takes, and a start to draw from."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, *model.resolution.shape, generator=generator)
    text, times = dict(model.encode([PROMPT, "two stars"]).tensors), torch.tensor([0.3, 0.8])
    start = torch.randn(1, *model.resolution.shape, generator=generator)
    if model.pipeline != "FluxPipeline":
        return {"x": x, "t": 1000 * times, "start": start, **text}
    pack = model.pipe._pack_latents
    ids = [[0.0, i, j] for i in range(4) for j in range(4)]
    return {
        "x": pack(x, 2, 16, 8, 8),
        "t": times,
        "guidance": torch.full([2], 3.5),
        "txt_ids": torch.zeros(16, 3),
        "img_ids": torch.tensor(ids),
        "start": pack(start, 1, 16, 8, 8),
        **text,
    }


def move(model: ImageModel, seed: int) -> None:
    """Move every trainable tensor, as an update would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)


def checkpointed(run: RunFolder, words: list[str]) -> tuple[Any, Any]:
    """A run's folder with its configuration and a checkpoint of moved weights."""
    composed = compose([*words, *SMALL, *EXACT])
    run.path.mkdir(parents=True)
    run.config.write_text(make_plan(composed.values, composed.choices).frozen())
    config = yaml.safe_load(run.config.read_text())
    model = instantiate_group(config, "model", device=torch.device("cpu"), seed=0)
    move(model, 1)
    model.weights.add("ema")
    move(model, 2)  # the policy is another one, so that it is seen which of them leaves
    begin_checkpoint(run.checkpoints / "step_000002", model, "ema", {})()
    return config, model


def latents_of(model: Any, config: Any, inputs: dict[str, Tensor]) -> Tensor:
    """What the run's own evaluation draws from the start, as the pipeline gives it."""
    start = inputs["start"]
    if model.pipeline == "FluxPipeline":
        start = model.pipe._unpack_latents(start, 64, 64, 8)
    sigmas = noise_levels(instantiate_group(config, "schedule"), model.resolution, 3)
    found = integrate_ode(model, model.encode([PROMPT]), start, sigmas)
    if model.pipeline == "FluxPipeline":
        return model.pipe._pack_latents(found, 1, 16, 8, 8)
    return found


def leave(case: Case, source: Path, place: Path, fresh: ModuleType) -> tuple[Tensor, Tensor, Any]:
    """Export one, and say what our model predicts and draws and what the fresh process is to do."""
    family, form, shifted = case
    finetune, merge = FORMS[form]
    words = [*FAMILIES[family], f"model.path={source}", f"model.finetune={finetune}"]
    run, to = RunFolder(place / "run"), place / "to"
    config, model = checkpointed(run, [*words, *([SHIFTED[family]] if shifted else [])])
    checkpoint = run.checkpoints / "step_000002"
    code = export_run(run, config, checkpoint, to, ExportOptions("ema", merge))
    inputs = inputs_of(model)
    save_file({name: tensor.clone() for name, tensor in inputs.items()}, place / "inputs")
    asked = {name: tensor for name, tensor in inputs.items() if name != "start"}
    with model.weights("ema"):
        network = fresh.network_of(model.pipe)
        if merge:
            merge_adapters(network)
        output, latents = fresh.predict(network, asked), latents_of(model, config, inputs)
    job = {"code": code, "inputs": str(place / "inputs"), "out": str(place / "out")}
    return output, latents, job | ({"peft": str(to)} if form == "lora" else {})


Leaving = Callable[[Case], Left]


@pytest.fixture(scope="module")
def left(
    sd_folder: Path,
    sd3_folder: Path,
    flux_folders: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Leaving:
    """A case; one fresh process opens those of its family, as it takes seconds to begin."""
    sources = {"sd": sd_folder, "sd3": sd3_folder, "flux": flux_folders["dev"]}

    @cache
    def opened(family: str) -> dict[Case, Left]:
        cases = [case for case in CASES if case[0] == family]
        return together(cases, sources[family], tmp_path_factory.mktemp("leaving"))

    return lambda case: opened(case[0])[case]


def together(cases: list[Case], source: Path, place: Path) -> dict[Case, Left]:
    fresh = load_script(FRESH)
    ours = {case: leave(case, source, place / str(i), fresh) for i, case in enumerate(cases)}
    (place / "jobs.json").write_text(json.dumps([job for _, _, job in ours.values()]))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, str(FRESH), str(place / "jobs.json")],
        env=environment | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return {
        case: Left(output, latents, load_file(job["out"]))
        for case, (output, latents, job) in ours.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_leaves_opens_elsewhere_bit_for_bit_and_its_printed_code_draws_the_same(
    left: Leaving, case: Case
) -> None:
    it = left(case)
    assert torch.equal(it.found["output"], it.output)
    if case[1] == "lora":
        assert torch.equal(it.found["peft"], it.output)
    torch.testing.assert_close(it.found["latents"], it.latents, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_merged_weights_are_the_adapters_as_far_as_rounding_goes(
    left: Leaving, family: str
) -> None:
    lora, merged = (left((family, form, False)).output for form in ("lora", "merged"))
    torch.testing.assert_close(merged, lora, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("family", SHIFTED)
def test_a_shift_of_the_runs_own_is_another_picture(left: Leaving, family: str) -> None:
    own, shifted = (left((family, "full", own)).latents for own in (False, True))
    assert not torch.allclose(own, shifted, atol=1e-2)
