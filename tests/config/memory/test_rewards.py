"""Rewards' networks in the estimate: weights by precision, and where they compute."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import CLIPConfig, CLIPModel, Qwen2VLConfig

from rlfactory.config.memory.peak_memory import (
    Bytes,
    estimate,
    published_rewards,
    reward_weights,
    traits_of,
)
from rlfactory.config.overrides import compose
from rlfactory.reward.hpsv3 import HPSv3Network
from rlfactory.utils.dotted_keys import with_values

VIT_H, VIT_L = 986_109_441, 427_616_513


def config(*words: str, **changes: Any) -> Any:
    values = compose(["model=sd35", "hardware.gpu=h100", "prompts=pick_a_pic", *words]).values
    return with_values(values, changes)


def of(*words: str, **changes: Any) -> Bytes:
    chosen = config(*words, **changes)
    found = estimate(chosen, traits_of(chosen))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ({"layers": 32, "width": 1280, "heads": 16, "patch": 14, "text": (24, 1024, 16)}, "hps"),
        (
            {"layers": 24, "width": 1024, "heads": 16, "patch": 14, "text": (12, 768, 12)},
            "openai/clip-vit-large-patch14",
        ),
    ],
)
def test_published_sizes_are_those_of_the_networks(shape: dict[str, Any], name: str) -> None:
    layers, width, heads = shape["text"]
    text = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    text |= {"intermediate_size": 4 * width, "vocab_size": 49408}
    vision = {"num_hidden_layers": shape["layers"], "hidden_size": shape["width"]}
    vision |= {"num_attention_heads": shape["heads"], "intermediate_size": 4 * shape["width"]}
    vision |= {"patch_size": shape["patch"], "image_size": 224}
    kind = CLIPConfig(text_config=text, vision_config=vision, projection_dim=width)
    with torch.device("meta"):
        network = CLIPModel(kind)
    assert sum(p.numel() for p in network.parameters()) == published_rewards()[name]


@pytest.mark.slow
def test_networks_add_up_in_the_precision_in_which_they_compute() -> None:
    assert of("reward=compressibility")["rewards"] == 0
    exact = of("reward=pickscore", **{"reward.dtype": "float32"})
    half = of("reward=pickscore", **{"reward.dtype": "bfloat16"})
    assert exact["rewards"] == 4 * VIT_H
    assert half["rewards"] == 2 * VIT_H
    assert of("reward=pickscore", **{"reward.dtype": "auto"})["rewards"] == 2 * VIT_H
    several = reward_weights(config("reward=preferences")["reward"], is_gpu=True)
    assert several == 2 * VIT_L + 4 * VIT_H


def test_hpsv3_is_as_large_as_its_network() -> None:
    text = {"vocab_size": 151_658, "hidden_size": 3584, "intermediate_size": 18_944}
    text |= {"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4}
    vision = {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "num_heads": 16, "mlp_ratio": 4}
    with torch.device("meta"):
        network = HPSv3Network(Qwen2VLConfig(text_config=text, vision_config=vision), (1024, 16, 2))
    node = config("reward=hpsv3", "reward.path=/mine.safetensors")["reward"]
    assert reward_weights(node, is_gpu=True) == 2 * sum(p.numel() for p in network.parameters())


def test_what_is_brought_for_scoring_is_there_while_sampling_if_a_thread_scores() -> None:
    words = ["reward=hpsv3", "scoring.offload=true", "micro_batch=1"]
    brought = [of(*words, f"scoring.background={kind}") for kind in ("thread", "none")]
    weights = of("reward=hpsv3")["rewards"]
    assert brought[0]["sampling"] > brought[1]["sampling"] == weights
    assert brought[0]["rewards"] == 0


def test_rewards_elsewhere_take_nothing_here() -> None:
    assert of("reward=pickscore", "scoring.device=cpu")["rewards"] == 0


def test_a_folder_is_read_by_its_headers(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(7, 3)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    for path, size in ((tmp_path, 42), ("owner/unknown", 0)):
        node = config("reward=pickscore", f"reward.path={path}")["reward"]
        assert reward_weights(node, is_gpu=True) == size
