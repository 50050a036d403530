"""Adapters merged into a network before it is trained: what it and an export of it compute."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import SD3Transformer2DModel
from peft import PeftModel
from safetensors.torch import save_file
from tiny_language_models import save_language_model
from torch import Tensor
from transformers import AutoModelForCausalLM

from rlfactory.model.lora import Lora
from rlfactory.model.merged_start import merge_start
from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.utils.errors import ModelError

IDS = torch.tensor([[5, 9, 2, 7, 1]])


def loaded(base: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()


@torch.no_grad()
def logits(network: Any) -> Tensor:
    found: Tensor = network(IDS).logits
    return found


def flow_network() -> SD3Transformer2DModel:
    torch.manual_seed(0)
    return SD3Transformer2DModel(
        sample_size=4,
        patch_size=1,
        in_channels=2,
        num_layers=1,
        attention_head_dim=4,
        num_attention_heads=2,
        joint_attention_dim=8,
        caption_projection_dim=8,
        pooled_projection_dim=8,
        pos_embed_max_size=8,
    )


def adapted(network: Any, seed: int, **options: Any) -> Lora:
    """Adapters that are not zero, on a network."""
    lora = Lora(network, **{"rank": 2, "alpha": 8.0, "targets": None, "seed": seed, **options})
    torch.manual_seed(seed)
    for parameter in lora.parameters().values():
        parameter.data.normal_(std=0.2)
    return lora


@pytest.fixture(params=["gpt2", "llama"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    # GPT-2's matrices are stored transposed
    is_gpt2 = request.param == "gpt2"
    return zoo_path("tiny_gpt2") if is_gpt2 else save_language_model(tmp_path / "base", "llama")


def saved(lora: Lora, folder: Path) -> Path:
    folder.mkdir()
    lora.save_for_peft(folder)
    return folder


@pytest.mark.parametrize("later", [False, True])
def test_it_computes_what_the_adapters_did(base: Path, later: bool, tmp_path: Path) -> None:
    first = loaded(base)
    bare = logits(first)
    start = saved(adapted(first, 1), tmp_path / "start")
    merged = loaded(base)
    if later:  # new adapters, which add nothing yet
        Lora(merged, rank=3, alpha=6.0, targets=None)
    merge_start(merged, start)
    torch.testing.assert_close(logits(merged), logits(first))
    assert not torch.allclose(logits(merged), bare, atol=1e-2)


@pytest.mark.parametrize("targets", [None, "all-linear"])
def test_an_export_holds_both(base: Path, targets: Any, tmp_path: Path) -> None:
    start = saved(adapted(loaded(base), 1), tmp_path / "start")
    trained = loaded(base)
    own = adapted(trained, 2, rank=3, alpha=6.0, targets=targets)
    own.start = merge_start(trained, start)
    whole = saved(own, tmp_path / "whole")
    options = json.loads((whole / "adapter_config.json").read_text())
    assert (options["r"], options["lora_alpha"]) == (5, 5)
    again = PeftModel.from_pretrained(loaded(base), whole)
    torch.testing.assert_close(logits(again), logits(trained), rtol=1e-4, atol=1e-5)
    # and adapters of it are the reference, as they are off
    with own.off():
        reference = logits(trained)
    torch.testing.assert_close(reference, logits(PeftModel.from_pretrained(loaded(base), start)))


@pytest.mark.parametrize("module", ["lm_head", "model.embed_tokens"])
def test_a_shared_weight_stays_as_it_is(module: str, tmp_path: Path) -> None:
    """The matrix of an output that is tied to its embedding can't have an adapter of one alone."""
    tied = loaded(save_language_model(tmp_path / "base", "qwen3"))
    before = tied.get_input_embeddings().weight.clone()
    assert tied.get_output_embeddings().weight is tied.get_input_embeddings().weight
    rows, width = before.shape
    shapes = (2, width), (rows, 2)
    save_file(
        {
            f"base_model.model.{module}.lora_{side}.weight": torch.ones(shape)
            for side, shape in zip("AB", shapes, strict=True)
        },
        tmp_path / "adapter_model.safetensors",
    )
    with pytest.raises(ModelError, match="shares its weight|no such layer"):
        merge_start(tied, tmp_path)
    assert torch.equal(tied.get_input_embeddings().weight, before)


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no LoRA adapters any more"):
        merge_start(flow_network(), tmp_path)
    name, file = "transformer_blocks.0.attn.to_q", tmp_path / "a.safetensors"

    def save(name: str, width: int) -> None:
        matrices = {"A": torch.zeros(2, width), "B": torch.zeros(8, 2)}
        save_file({f"transformer.{name}.lora_{k}.weight": v for k, v in matrices.items()}, file)

    save(name, 7)
    with pytest.raises(ModelError, match=r"adapts .*to_q of \[8, 7\], and here it is \[8, 8\]"):
        merge_start(flow_network(), file)
    save("attn.to_z", 8)
    with pytest.raises(ModelError, match="adapts attn.to_z, and here is no such layer"):
        merge_start(flow_network(), file)
    save(name, 8)
    assert [*merge_start(flow_network(), file)] == [name]


def test_half_precision_is_rounded_once(tmp_path: Path) -> None:
    exact = flow_network()
    start = saved(adapted(flow_network(), 1, targets=["attn.to_q"]), tmp_path / "start")
    half = flow_network().bfloat16()
    merge_start(exact.bfloat16().float(), start)
    merge_start(half, start)
    for name, parameter in exact.named_parameters():
        assert torch.equal(half.get_parameter(name), parameter.bfloat16()), name
