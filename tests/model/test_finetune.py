"""What is trained, and in what form it leaves."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import UNet2DConditionModel

from rlfactory.model.finetune import export, set_up


def network() -> UNet2DConditionModel:
    torch.manual_seed(0)
    return UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        block_out_channels=(8,),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D",),
        up_block_types=("CrossAttnUpBlock2D",),
        cross_attention_dim=8,
        attention_head_dim=2,
        norm_num_groups=2,
    )


def made(finetune: Any) -> tuple[Any, Any, Any]:
    unet = network()
    weights, lora = set_up(unet, finetune, rank=2, alpha=4.0, targets=["to_q"], seed=0)
    return unet, weights, lora


def test_adapters_train_themselves_alone() -> None:
    unet, weights, lora = made("lora")
    trained = [name for name, p in unet.named_parameters() if p.requires_grad]
    assert lora is not None
    assert trained == list(weights.parameters)
    assert all("lora" in name and "to_q" in name for name in trained)
    assert "reference" in weights, "the network without adapters, at no cost"


def test_all_weights_are_trained_without_adapters() -> None:
    unet, weights, lora = made("full")
    assert lora is None
    assert list(weights.parameters) == [name for name, _ in unet.named_parameters()]
    assert all(p.requires_grad for p in unet.parameters())
    assert "reference" not in weights


@pytest.mark.parametrize("finetune", ["lora", "full"])
def test_what_leaves_is_what_was_trained(finetune: str, tmp_path: Path) -> None:
    unet, weights, lora = made(finetune)
    saved: dict[str, Any] = {}
    pipe = SimpleNamespace(unet=unet, save_lora_weights=lambda folder, **kept: saved.update(kept))
    export(pipe, "unet", lora, tmp_path)
    if finetune == "full":
        again = UNet2DConditionModel.from_pretrained(tmp_path / "unet")
        for name, parameter in again.named_parameters():
            assert torch.equal(parameter, weights.parameters[name])
        return
    assert saved["unet_lora_adapter_metadata"]["lora_alpha"] == 4.0
    assert len(saved["unet_lora_layers"]) == len(weights.parameters)
    assert (tmp_path / "adapter_config.json").is_file()
