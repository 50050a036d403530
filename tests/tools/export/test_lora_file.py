"""LoRA files for other programs: what diffusers reads of them are the same adapters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import FluxPipeline, StableDiffusion3Pipeline, StableDiffusionPipeline
from safetensors.torch import save_file
from torch import Tensor

from rlfactory.config.overrides import plan_from_words
from rlfactory.model.lora import Lora, merge_adapters
from rlfactory.model.merged_start import merge_start
from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.run.checkpoint.load import load_initial_weights
from rlfactory.tools.export.lora_file import write_lora_file
from rlfactory.train.build import instantiate_group

RANK, ALPHA = 2, 6.0
PIPELINES = {
    "tiny_sd": StableDiffusionPipeline,
    "tiny_sd3": StableDiffusion3Pipeline,
    "tiny_flux": FluxPipeline,
}
TARGETS = {
    "tiny_sd": ["to_q", "to_v", "to_out.0"],
    "tiny_sd3": ["attn.to_q", "attn.add_k_proj", "ff.net.0.proj"],
    "tiny_flux": ["attn.to_add_out", "attn.add_q_proj", "attn.add_v_proj", "ff.net.2"],
}


def pipeline(name: str) -> Any:
    pipe = PIPELINES[name].from_pretrained(zoo_path(name), dtype={"default": torch.float32})
    pipe.set_progress_bar_config(disable=True)
    return pipe


def adapted(network: Any, targets: list[str]) -> Lora:
    """With adapters that change what the network computes."""
    lora = Lora(network, rank=RANK, alpha=ALPHA, targets=targets)
    with torch.no_grad():
        for i, parameter in enumerate(lora.parameters().values()):
            generator = torch.Generator().manual_seed(i)
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return lora


def write(path: Path, lora: Lora, kind: str) -> None:
    write_lora_file(path, lora.state_dict(), pipeline=kind, rank=RANK, alpha=ALPHA)


def picture(pipe: Any) -> Tensor:
    options = {"height": 64, "width": 64, "num_inference_steps": 2, "output_type": "pt"}
    with torch.no_grad():
        return pipe("two stars", generator=torch.Generator().manual_seed(0), **options).images


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
def test_the_file_draws_the_same_picture(name: str, tmp_path: Path) -> None:
    ours, theirs = pipeline(name), pipeline(name)
    plain = picture(theirs)
    network = ours.unet if name == "tiny_sd" else ours.transformer
    write(tmp_path / "a.safetensors", adapted(network, TARGETS[name]), type(ours).__name__)
    theirs.load_lora_weights(tmp_path, weight_name="a.safetensors")
    expected = picture(ours)
    assert (expected - plain).abs().max() > 0.05
    torch.testing.assert_close(picture(theirs), expected, rtol=0, atol=1e-4)


def test_a_run_begins_from_kohyas_file(tmp_path: Path) -> None:
    """The plan reads its targets, rank and alpha; the run its values, by the names of modules."""
    file = tmp_path / "a.safetensors"
    lora = adapted(pipeline("tiny_sd").unet, TARGETS["tiny_sd"])
    write(file, lora, "StableDiffusionPipeline")
    words = ("model=tiny_sd", "hardware=cpu", f"begin_from={file}")
    model = instantiate_group(plan_from_words(*words).config, "model", device=torch.device("cpu"))
    assert (model.lora.config.r, model.lora.config.lora_alpha) == (RANK, ALPHA)
    load_initial_weights(file, model)
    expected = lora.state_dict()
    assert {*model.lora.state_dict()} == {*expected}
    for key, value in model.lora.state_dict().items():
        assert torch.equal(value, expected[key]), key
    merged = pipeline("tiny_sd").unet
    merge_start(merged, file, "StableDiffusionPipeline")
    merge_adapters(lora.network)
    for key, value in lora.network.state_dict().items():
        torch.testing.assert_close(merged.state_dict()[key], value)


def test_of_other_names_the_plan_says_what_converts_them(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    file = tmp_path / "a.safetensors"
    for key in ("lora_unet_input_blocks_1_1_proj_in.lora_down.weight", "diffusion_model.x.lora_A"):
        save_file({key: torch.zeros(2, 4)}, file)
        said = refused("check", "model=tiny_sd", f"begin_from={file}")
        assert said.count("error:") == 1
        assert "pipe.load_lora_weights" in said
