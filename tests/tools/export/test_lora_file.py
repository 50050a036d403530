"""LoRA files for other programs: what diffusers reads of them are the same adapters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import FluxPipeline, StableDiffusion3Pipeline, StableDiffusionPipeline
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlfactory.config.overrides import plan_from_words
from rlfactory.model.lora import Lora, merge_adapters
from rlfactory.model.merged_start import merge_start
from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.run.checkpoint.load import load_initial_weights
from rlfactory.tools.export.lora_file import Style, write_lora_file
from rlfactory.train.build import instantiate_group
from rlfactory.utils.errors import ModelError

RANK, ALPHA = 2, 6.0
PIPELINES = {
    "tiny_sd": StableDiffusionPipeline,
    "tiny_sd3": StableDiffusion3Pipeline,
    "tiny_flux": FluxPipeline,
}
TARGETS = {
    "tiny_sd": ["to_q", "to_v", "to_out.0"],
    "tiny_sd3": ["attn.to_q", "attn.add_k_proj", "ff.net.0.proj"],
    # of double blocks: the sizes of single blocks are FLUX.1's own in diffusers' converter
    "tiny_flux": ["attn.to_add_out", "attn.add_q_proj", "attn.add_v_proj", "ff.net.2"],
}
CASES: list[tuple[str, Style]] = [
    ("tiny_sd", "kohya"),
    ("tiny_sd3", "comfyui"),
    ("tiny_flux", "kohya"),
    ("tiny_flux", "comfyui"),
]


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


def write(path: Path, lora: Lora, style: Style, kind: str) -> None:
    write_lora_file(
        path,
        lora.state_dict(),
        style=style,
        pipeline=kind,
        rank=RANK,
        alpha=ALPHA,
        width=lambda name: lora.network.get_submodule(name).out_features,
    )


def picture(pipe: Any) -> Tensor:
    options = {"height": 64, "width": 64, "num_inference_steps": 2, "output_type": "pt"}
    with torch.no_grad():
        return pipe("two stars", generator=torch.Generator().manual_seed(0), **options).images


@pytest.mark.slow
@pytest.mark.parametrize(("name", "style"), CASES)
def test_the_file_draws_the_same_picture(name: str, style: Style, tmp_path: Path) -> None:
    ours, theirs = pipeline(name), pipeline(name)
    plain = picture(theirs)
    network = ours.unet if name == "tiny_sd" else ours.transformer
    write(tmp_path / "a.safetensors", adapted(network, TARGETS[name]), style, type(ours).__name__)
    theirs.load_lora_weights(tmp_path, weight_name="a.safetensors")
    expected = picture(ours)
    assert (expected - plain).abs().max() > 0.05
    torch.testing.assert_close(picture(theirs), expected, rtol=0, atol=1e-4)


def test_a_run_begins_from_kohyas_file(tmp_path: Path) -> None:
    """The plan reads its targets, rank and alpha; the run its values, by the names of modules."""
    file = tmp_path / "a.safetensors"
    lora = adapted(pipeline("tiny_sd").unet, TARGETS["tiny_sd"])
    write(file, lora, "kohya", "StableDiffusionPipeline")
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


def flux_layer(state: dict[str, Tensor], layer: str, out: int, width: int = 3072) -> None:
    generator = torch.Generator().manual_seed(len(state))
    state[f"{layer}.lora_A.weight"] = torch.randn(RANK, width, generator=generator)
    state[f"{layer}.lora_B.weight"] = torch.randn(out, RANK, generator=generator)


@pytest.mark.slow
@pytest.mark.parametrize("has_mlp", [False, True])
def test_layers_that_kohya_fuses_come_apart_again(has_mlp: bool, tmp_path: Path) -> None:
    state: dict[str, Tensor] = {}
    for part in ("to_q", "to_k", "to_v"):
        flux_layer(state, f"single_transformer_blocks.7.attn.{part}", 3072)
    if has_mlp:
        flux_layer(state, "single_transformer_blocks.7.proj_mlp", 12288)
    flux_layer(state, "transformer_blocks.11.attn.to_k", 3072)
    options: dict[str, Any] = {"style": "kohya", "pipeline": "FluxPipeline", "rank": RANK}
    widths: Callable[[str], int] = lambda name: 12288 if "mlp" in name else 3072  # noqa: E731
    write_lora_file(tmp_path / "a.safetensors", state, **options, alpha=ALPHA, width=widths)
    keys = load_file(tmp_path / "a.safetensors")
    assert {key.partition(".")[0] for key in keys} == {
        "lora_unet_single_blocks_7_linear1",
        "lora_unet_double_blocks_11_img_attn_qkv",
    }
    found = FluxPipeline.lora_state_dict(tmp_path, weight_name="a.safetensors")
    found = {key.removeprefix("transformer."): value for key, value in found.items()}
    for layer in sorted({key.rpartition(".lora_")[0] for key in found}):
        down, up = (found[f"{layer}.lora_{matrix}.weight"] for matrix in "AB")
        if f"{layer}.lora_A.weight" not in state:
            assert not down.any()
            continue
        expected = state[f"{layer}.lora_B.weight"] @ state[f"{layer}.lora_A.weight"]
        torch.testing.assert_close(up @ down, ALPHA / RANK * expected)


@pytest.mark.parametrize(
    ("kind", "layer", "message"),
    [
        ("StableDiffusion3Pipeline", "transformer_blocks.0.attn.to_q", "type --format comfyui"),
        ("FluxPipeline", "x_embedder", "no name for x_embedder; type --format comfyui"),
    ],
)
def test_what_has_no_name_is_refused(kind: str, layer: str, message: str, tmp_path: Path) -> None:
    state: dict[str, Tensor] = {}
    flux_layer(state, layer, 8, 8)
    options: dict[str, Any] = {"style": "kohya", "pipeline": kind, "rank": RANK, "alpha": ALPHA}
    with pytest.raises(ModelError, match=message):
        write_lora_file(tmp_path / "a", state, **options, width=lambda _: 8)
    assert not (tmp_path / "a").exists()
