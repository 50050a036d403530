"""Loading open_clip's weight files into transformers' `CLIPModel`, by renaming their tensors.

open_clip fuses query, key and value into one matrix, which is split, and multiplies by its two
projections from the right, so these are transposed. No number changes.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import CLIPConfig, CLIPModel

from rlfactory.reward.backbones.pretrained import loading, read_weights, require_shapes

_TOWER = {
    "intermediate_size": 4096,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "hidden_act": "gelu",  # OpenAI's own are "quick_gelu"
    "projection_dim": 1024,
}
VIT_H_14: Mapping[str, Any] = {
    "projection_dim": 1024,
    "text_config": _TOWER,
    "vision_config": _TOWER
    | {"intermediate_size": 5120, "hidden_size": 1280, "num_hidden_layers": 32}
    | {"image_size": 224, "patch_size": 14},
}
"""The configuration of open_clip's ViT-H-14, by transformers' names."""

_OUTER = {
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "logit_scale": "logit_scale",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
}
_PROJECTIONS = {
    "text_projection": "text_projection.weight",
    "visual.proj": "visual_projection.weight",
}
_LAYER = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_BLOCK = re.compile(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.+?)[._](weight|bias)")


def convert(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict with transformers' names; unknown names stay.

    The prefix `module.` of DistributedDataParallel, and the causal mask that older versions saved,
    are removed.
    """
    converted: dict[str, Tensor] = {}
    for full_name, tensor in weights.items():
        name = full_name.removeprefix("module.")
        if name in _PROJECTIONS:
            converted[_PROJECTIONS[name]] = tensor.T.contiguous()
        elif name != "attn_mask":
            converted |= _convert_block(name, tensor) or {_OUTER.get(name, name): tensor}
    return converted


def _convert_block(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """The tensors that one of a transformer block becomes; none if the name is of no block."""
    match = _BLOCK.fullmatch(name)
    if match is None:
        return {}
    tower, index, part, kind = match.groups()
    layer = f"{'vision' if tower else 'text'}_model.encoder.layers.{index}"
    if part == "attn.in_proj":
        thirds = zip("qkv", tensor.chunk(3), strict=True)
        return {f"{layer}.self_attn.{letter}_proj.{kind}": third for letter, third in thirds}
    return {f"{layer}.{_LAYER[part]}.{kind}": tensor} if part in _LAYER else {}


def load_open_clip(path: str, config: Mapping[str, Any], *, key: str, what: str) -> Any:
    """The `CLIPModel` of an open_clip file, in float32; RewardError where names or shapes differ.

    `key` and `what` are the configuration key of `path` and the model's name, for messages.
    """
    weights = convert(read_weights(path, key=key))
    clip_config = CLIPConfig(**config)
    with torch.device("meta"):
        expected = CLIPModel(clip_config).state_dict()
    require_shapes(
        weights,
        {name: tensor.shape for name, tensor in expected.items()},
        path=path,
        key=key,
        what=what,
    )
    with loading(key, path, what):
        return CLIPModel.from_pretrained(
            None, config=clip_config, state_dict=weights, dtype=torch.float32
        )
