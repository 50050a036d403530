"""What is known of LoRA adapters from their files, without torch."""

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from torch import nn

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.model.merged_start import merge_start
from rlfactory.model.pipelines.adapter_files import (
    AdapterFileError,
    count_targets,
    find_adapters,
    is_target,
    read_adapters,
    with_all_linear,
)
from rlfactory.model.pipelines.families import BY_PIPELINE, FAMILIES
from rlfactory.model.pipelines.local_models import pipeline_of, read_header


def save(path: Path, layers: dict[str, int], metadata: dict[str, str] | None = None) -> Path:
    """Layers by name, with the rank of each."""
    path.parent.mkdir(exist_ok=True)
    state = {f"{name}.lora_A.weight": torch.zeros(rank, 3) for name, rank in layers.items()}
    state |= {f"{name}.lora_B.weight": torch.zeros(4, rank) for name, rank in layers.items()}
    save_file(state, path, metadata)
    return path


def test_a_folder_of_peft(tmp_path: Path) -> None:
    file = save(tmp_path / "adapter_model.safetensors", {"base_model.model.transformer.h.0": 2})
    (tmp_path / "adapter_config.json").write_text('{"lora_alpha": 6}')
    assert find_adapters(tmp_path) == find_adapters(file) == file
    found = read_adapters(file)
    assert (found.rank, found.alpha) == (2, 6.0)
    assert set(found.keys) == {"transformer.h.0.lora_A.weight", "transformer.h.0.lora_B.weight"}


@pytest.mark.parametrize(
    ("options", "alpha"),
    [
        ({"r": 2}, 8),
        ({"lora_alpha": 6, "alpha_pattern": {"of_another": 3}}, 6),
        ({"lora_alpha": 6, "alpha_pattern": {r"h\.\d\.q": 3, "v": 3.0}}, 3),
        ({"lora_alpha": 6, "alpha_pattern": {"q": 3}}, None),
    ],
)
@pytest.mark.filterwarnings("ignore:The following alpha_pattern keys")
def test_the_alpha_is_that_of_peft(
    options: dict[str, Any], alpha: float | None, tmp_path: Path
) -> None:
    names = {f"base_model.model.h.0.{name}": 2 for name in ("q", "v")}
    file = save(tmp_path / "adapter_model.safetensors", names)
    (tmp_path / "adapter_config.json").write_text(json.dumps(options))
    layers = {name: nn.Linear(3, 4) for name in ("q", "v")}
    network = nn.ModuleDict({"h": nn.ModuleList([nn.ModuleDict(layers)])})
    adapted = get_peft_model(network, LoraConfig(target_modules=["q", "v"], **options))
    scales = {m.scaling["default"] for m in adapted.modules() if hasattr(m, "scaling")}
    if alpha is None:
        with pytest.raises(AdapterFileError, match=r"several alphas: \[3, 6\]"):
            read_adapters(file)
    else:
        assert read_adapters(file).alpha == alpha
        assert scales == {alpha / options.get("r", 8)}


def test_a_file_of_a_training_script_of_diffusers(tmp_path: Path) -> None:
    name = "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_k"
    state = {
        f"{name}.lora.down.weight": torch.ones(2, 3),
        f"{name}.lora.up.weight": torch.ones(4, 2),
    }
    save_file(state, tmp_path / "pytorch_lora_weights.safetensors")
    found = read_adapters(tmp_path / "pytorch_lora_weights.safetensors")
    assert (found.rank, found.modules) == (2, {name.removeprefix("unet."): (3, 4)})


@pytest.mark.parametrize("says", [True, False])
def test_a_file_of_diffusers(says: bool, tmp_path: Path) -> None:
    about = {"lora_adapter_metadata": json.dumps({"transformer.lora_alpha": 8.0})}
    file = save(
        tmp_path / "pytorch_lora_weights.safetensors",
        {"transformer.transformer_blocks.0.attn.to_q": 4},
        about if says else None,
    )
    # of other adapters beside it
    (tmp_path / "adapter_config.json").write_text('{"lora_alpha": 6}')
    found = read_adapters(file)
    assert (found.rank, found.alpha) == (4, 8.0 if says else 4.0)
    assert min(found.keys) == "transformer_blocks.0.attn.to_q.lora_A.weight"


def test_what_can_not_be_read_is_said(tmp_path: Path) -> None:
    assert find_adapters(tmp_path) is None
    assert find_adapters(tmp_path / "a.ckpt") is None
    mixed = save(tmp_path / "mixed.safetensors", {"unet.a": 1, "unet.b": 2})
    with pytest.raises(AdapterFileError, match=r"several ranks: \[1, 2\]; .*fuse_lora"):
        read_adapters(mixed, "StableDiffusionPipeline")
    save_file({"lora_unet_a.lora_down.weight": torch.zeros(1, 2)}, tmp_path / "kohya.safetensors")
    for pipeline, part in (("StableDiffusionPipeline", "unet"), ("FluxPipeline", "transformer")):
        with pytest.raises(AdapterFileError, match=f"lora_unet_a.*{pipeline}.*pipe.{part}.save"):
            read_adapters(tmp_path / "kohya.safetensors", pipeline)
    with pytest.raises(AdapterFileError, match="converts for no SanaPipeline; allowed are"):
        read_adapters(tmp_path / "kohya.safetensors", "SanaPipeline")
    with pytest.raises(AdapterFileError, match="no PEFT names"):
        read_adapters(tmp_path / "kohya.safetensors")
    both = save(tmp_path / "both.safetensors", {"text_encoder.encoder.layers.0.q": 1, "unet.a": 1})
    with pytest.raises(AdapterFileError, match="adapts text encoders too .*train_text_encoder"):
        read_adapters(both, "StableDiffusionPipeline")
    save_file({"a.lora_B.bias": torch.zeros(4)}, tmp_path / "lora_bias.safetensors")
    with pytest.raises(AdapterFileError, match="weights beside adapters .*merge_and_unload"):
        read_adapters(tmp_path / "lora_bias.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(AdapterFileError, match="no safetensors file"):
        read_adapters(tmp_path / "broken.safetensors")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"init_lora_weights": "pissa_niter_4"}, "pissa_niter_4, which changed its model too"),
        ({"init_lora_weights": "OLoRA"}, "olora, which changed"),
        ({"alora_invocation_tokens": [1]}, "PEFT's alora_invocation_tokens"),
        ({"alpha_pattern": {"(q": 3}}, r"alpha_pattern that is no expression: '.*\(q.*' \(missing"),
    ],
)
def test_adapters_that_are_no_sum_with_the_model_are_refused(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    file = save(tmp_path / "adapter_model.safetensors", {"base_model.model.h": 2})
    config = tmp_path / "adapter_config.json"
    config.write_text(json.dumps({"lora_alpha": 6, **options}))
    with pytest.raises(AdapterFileError, match=said):
        read_adapters(file)
    config.write_text(json.dumps({"lora_alpha": 6, **dict.fromkeys(options)}))
    assert read_adapters(file).alpha == 6


TO_Q, TO_OUT = "down_blocks.0.attn1.to_q", "down_blocks.0.attn1.to_out.0"


def kohya(path: Path, dtype: torch.dtype, alphas: tuple[float, float], of: str = "unet") -> Path:
    """Two layers by kohya's names, the second as a convolution of one pixel."""
    state = {}
    for name, alpha, ones in zip((TO_Q, TO_OUT), alphas, ((), (1, 1)), strict=True):
        key = f"lora_{of}_{name.replace('.', '_')}"
        matrices = {
            "lora_down.weight": torch.ones(2, 3, *ones),
            "lora_up.weight": torch.ones(4, 2, *ones),
            "alpha": torch.tensor(alpha),
        }
        state |= {f"{key}.{end}": value.to(dtype) for end, value in matrices.items()}
    save_file(state, path)
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_kohyas_names_of_known_modules(dtype: torch.dtype, tmp_path: Path) -> None:
    known = [TO_Q, TO_OUT, "conv_in"]
    file = kohya(tmp_path / "a.safetensors", dtype, (6.0, 6.0))
    found = read_adapters(file, "StableDiffusionPipeline", known)
    assert (found.rank, found.alpha) == (2, 6.0)
    assert found.modules == {TO_Q: (3, 4), TO_OUT: (3, 4)}
    assert found.keys[f"{TO_Q}.lora_B.weight"] == (
        "lora_unet_down_blocks_0_attn1_to_q.lora_up.weight"
    )
    with pytest.raises(AdapterFileError, match="load_lora_weights"):
        read_adapters(file, "StableDiffusionPipeline", known[1:])
    with pytest.raises(AdapterFileError, match=r"several alphas: \[3.0, 6.0\]"):
        read_adapters(kohya(file, dtype, (6.0, 3.0)), "StableDiffusionPipeline", known)
    with pytest.raises(AdapterFileError, match="adapts text encoders too .*lora_te_down"):
        read_adapters(kohya(file, dtype, (6.0, 6.0), "te"), "StableDiffusionPipeline", known)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.option)
def test_which_loaders_read_other_names_is_what_their_source_says(family: Any) -> None:
    source = inspect.getsource(getattr(diffusers, family.pipeline).lora_state_dict)
    is_read = re.search(r'"lora_unet_|is_kohya', source) is not None
    assert is_read == ("kohya" in family.converts)
    is_converted = "_convert_" in source or "is_diffusion_model_prefix" in source
    assert is_converted == ("original" in family.converts)


BLOCK = "lora_unet_input_blocks_3_1_transformer_blocks_0"
FOREIGN = {
    "sdxl": ({f"{BLOCK}_attn1_to_q": (16, 16), f"{BLOCK}_ff_net_2": (64, 16)}, 2),
    # of one matrix A diffusers makes three, in the same memory
    "flux_schnell": ({"lora_unet_double_blocks_0_img_attn_qkv": (32, 96)}, 3),
    "flux3_klein": ({"diffusion_model.single_blocks.0.q_proj": (32, 32)}, 1),
}
"""Layers under the names of networks' original code, and in how many modules they end."""
TEXTS = {
    f"lora_te1_text_model_encoder_layers_0_{name}": (16, 16)
    for name in ("self_attn_q_proj", "self_attn_k_proj", "self_attn_v_proj", "self_attn_out_proj")
}


def foreign(layers: dict[str, tuple[int, int]]) -> dict[str, torch.Tensor]:
    """By kohya's names, and with an alpha, where these are no paths."""
    state = {}
    for name, (inputs, outputs) in layers.items():
        ends = ("lora_A", "lora_B") if "." in name else ("lora_down", "lora_up")
        shapes = (4, inputs), (outputs, 4)
        state |= {f"{name}.{e}.weight": torch.randn(s) for e, s in zip(ends, shapes, strict=True)}
        state |= {} if "." in name else {f"{name}.alpha": torch.tensor(2.0)}
    return state


def loaded(pipeline: str, folder: Path) -> Any:
    pipe = getattr(diffusers, pipeline).from_pretrained(folder)
    if BY_PIPELINE[pipeline].modular:
        pipe.load_components()
    return pipe.to(dtype=torch.float32)


def ran(pattern: str, words: list[str], folder: Path, to: Path) -> None:
    """Run the code that a plan prints where it refuses to begin from adapters."""
    with pytest.raises(PlanError) as error:
        plan_from_words(*words)
    found = re.search(rf"{pattern}: (pipe = .*?)\. Then type", str(error.value))
    assert found is not None, error.value
    code = re.sub("'(converted|merged)'", repr(str(to)), found[1].replace("MODEL", "folder"))
    exec(code, {**vars(diffusers), "folder": str(folder)})


@pytest.mark.parametrize("option", FOREIGN)
def test_another_programs_names_are_converted_by_the_code_that_is_printed(
    option: str, small: Callable[[str], list[str]], tmp_path: Path
) -> None:
    words, (layers, count), file = small(option), FOREIGN[option], tmp_path / "a.safetensors"
    torch.manual_seed(0)
    save_file(foreign(layers), file)
    folder = Path(words[0].partition("=")[2])
    words = [f"model={option}", "recipe=none", "algo=nft", "distilled_to=null", *words]
    ran("diffusers converts them", [*words, f"begin_from={file}"], folder, tmp_path / "new")
    plan = plan_from_words(*words, f"begin_from={tmp_path / 'new'}")
    assert plan.config["model"]["lora_rank"] == 4
    pipeline = str(pipeline_of(folder))
    part = BY_PIPELINE[pipeline].network
    pipe, bare = loaded(pipeline, folder), getattr(loaded(pipeline, folder), part)
    pipe.load_lora_weights(str(file), adapter_name="a")
    start = merge_start(bare, tmp_path / "new", pipeline)
    assert len(start) == count
    for name in start:
        layer = getattr(pipe, part).get_submodule(name)
        expected = layer.base_layer.weight + layer.get_delta_weight("a")
        torch.testing.assert_close(bare.get_submodule(name).weight, expected)


def test_adapters_of_text_encoders_are_merged_by_the_code_that_is_printed(
    sdxl_folder: Path, small: Callable[[str], list[str]], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    file, merged = tmp_path / "a.safetensors", tmp_path / "merged"
    save_file(foreign({**FOREIGN["sdxl"][0], **TEXTS}), file)
    words = ["model=sdxl", "recipe=none", "algo=nft", *small("sdxl")]
    ran("diffusers merges them", [*words, f"begin_from={file}"], sdxl_folder, merged)
    assert plan_from_words(*words, f"model.path={merged}").config["begin_from"] is None
    pipe, found = (loaded("StableDiffusionXLPipeline", f) for f in (sdxl_folder, merged))
    pipe.load_lora_weights(str(file), adapter_name="a")
    names = [(pipe.unet, found.unet, "down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q")]
    text = next(
        n for n, _ in found.text_encoder.named_modules() if n.endswith("0.self_attn.q_proj")
    )
    for adapted, whole, name in [*names, (pipe.text_encoder, found.text_encoder, text)]:
        layer = adapted.get_submodule(name)
        expected = layer.base_layer.weight + layer.get_delta_weight("a")
        assert not torch.allclose(layer.base_layer.weight, expected, atol=0.1)
        # the folder's text encoders are in half precision
        torch.testing.assert_close(whole.get_submodule(name).weight, expected, rtol=2e-3, atol=5e-3)


@pytest.mark.parametrize("known", [True, False])
def test_targets_adapt_the_modules_of_the_file_and_no_others(known: bool, tmp_path: Path) -> None:
    def targets(modules: list[str], network: list[str]) -> list[str]:
        file = save(tmp_path / "a.safetensors", dict.fromkeys(modules, 2))
        return read_adapters(file).targets(network if known else [])

    blocks = [f"transformer_blocks.{i}.attn.to_{kind}" for i in range(3) for kind in "qk"]
    assert targets(blocks, blocks) == (["attn.to_k", "attn.to_q"] if known else sorted(blocks))
    assert targets(blocks[:1], blocks) == blocks[:1]
    assert targets(blocks[1:], blocks) == (sorted(blocks[1:]))
    # names of one block that end as containers, or activations, of others do
    outs = ["single_transformer_blocks.0.attn.to_out", "transformer_blocks.0.attn.to_out.0"]
    assert targets(outs, outs) == outs
    mods = ["final.2-1.modulation.1", "layers.0.modulation.0"]
    assert targets(mods, mods) == mods
    one = ["transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_attn"]
    short = [name.removeprefix("transformer.") for name in one]  # as some files have them
    found = targets([f"base_model.model.{n}" for n in one], short)
    assert found == (["attn.c_attn"] if known else one)


def test_names_as_peft_reads_them() -> None:
    assert with_all_linear("All-Linear") == with_all_linear(["all-linear"]) == "all-linear"
    assert with_all_linear(["c_attn"]) == ["c_attn"]
    assert is_target("h.0.attn.c_attn", ["c_attn"])
    assert not is_target("h.0.attn.my_c_attn", ["c_attn"])
    assert is_target("h.0.attn.c_attn", r"h\.\d\..*")
    assert not is_target("h.0.attn.c_attn", "c_attn")
    assert count_targets(None, 7) is None
    assert count_targets("all-linear", 7) == 7
    assert count_targets(["h.0.c_attn", "h.1.c_attn"], 7) == 1


def test_a_header_is_read_alone(tmp_path: Path) -> None:
    file = save(tmp_path / "a.safetensors", {"a": 1}, {"format": "pt"})
    header = read_header(file)
    assert header["__metadata__"] == {"format": "pt"}
    assert header["a.lora_A.weight"]["shape"] == [1, 3]
