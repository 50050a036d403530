"""Human Preference Score v2, HPSv2 (Wu et al. 2023): the cosine of image and prompt by a CLIP.

The network is open_clip's ViT-H-14, fine-tuned on human preferences. The preprocessing is HPSv2's:
the longer side is resized, and the shorter one padded with black.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from rlfactory.reward.backbones.clip import (
    Clip,
    ClipReward,
    clip_preprocessing,
    load_clip_tokenizer,
)
from rlfactory.reward.backbones.pretrained import (
    Precision,
    loading,
    read_weights,
    renamed,
    require_shapes,
)
from rlfactory.utils.types import PositiveInt

FILES = {"v2.1": "xswu/HPSv2/HPS_v2.1_compressed.pt", "v2.0": "xswu/HPSv2/HPS_v2_compressed.pt"}
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
_RENAMED = (
    (r"^visual\.transformer\.resblocks\.", "vision_model.encoder.layers."),
    (r"^transformer\.resblocks\.", "text_model.encoder.layers."),
    (r"(?<=\d\.)ln_(?=[12]\.)", "layer_norm"),
    (r"(?<=\d\.)attn\.", "self_attn."),
    (r"(?<=\.mlp\.)c_fc\.", "fc1."),
    (r"(?<=\.mlp\.)c_proj\.", "fc2."),
    (r"^visual\.class_embedding$", "vision_model.embeddings.class_embedding"),
    (r"^visual\.positional_embedding$", "vision_model.embeddings.position_embedding.weight"),
    (r"^visual\.conv1\.", "vision_model.embeddings.patch_embedding."),
    (r"^visual\.ln_pre\.", "vision_model.pre_layrnorm."),
    (r"^visual\.ln_post\.", "vision_model.post_layernorm."),
    (r"^positional_embedding$", "text_model.embeddings.position_embedding.weight"),
    (r"^token_embedding\.", "text_model.embeddings.token_embedding."),
    (r"^ln_final\.", "text_model.final_layer_norm."),
)
"""Substitutions from open_clip's names to transformers', applied in order."""
_PROJECTIONS = {
    "text_projection": "text_projection.weight",
    "visual.proj": "visual_projection.weight",
}


def resize_and_pad(images: Tensor, side: int = 224) -> Tensor:
    """HPSv2's preprocessing: images `[B, 3, H, W]`, uint8 or float in [0, 1], to `[B, 3, side,
    side]` float32.

    As in HPSv2's open_clip (`ResizeMaxSize`): the longer side becomes `side` (bicubic with
    antialias on numbers in [0, 1], neither clipped nor rounded), the rest is black; then
    CLIP's mean and deviation.
    """
    height, width = images.shape[2:]
    scale = side / max(height, width)
    size = (round(height * scale), round(width * scale))
    pixels = images if images.is_floating_point() else images.float() / 255
    if size != (height, width):
        pixels = interpolate(pixels, size, mode="bicubic", align_corners=False, antialias=True)
    left, top = (side - size[1]) // 2, (side - size[0]) // 2
    pixels = pad(pixels, (left, side - size[1] - left, top, side - size[0] - top))
    mean, std = (
        torch.tensor(values, device=pixels.device) for values in (OPENAI_CLIP_MEAN, OPENAI_CLIP_STD)
    )
    return (pixels - mean[:, None, None]) / std[:, None, None]


class HPS(ClipReward):
    """`hps`: the cosine of image and prompt by the network of HPS v2.1, or v2.0."""

    main = "hps"
    published_size = "hps"

    def __init__(
        self,
        device: torch.device,
        *,
        version: Literal["v2.1", "v2.0"] = "v2.1",
        path: str | None = None,
        processor: str = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
        fit: Literal["pad", "crop"] = "pad",
        dtype: Precision = "auto",
        batch_size: PositiveInt = 16,
    ) -> None:
        """
        Args:
            version: v2.1 | v2.0: which weights are downloaded where path is null.
            path: null, or the weights as published: a file or OWNER/NAME/FILE of the hub.
            processor: The tokenizer: a folder or a hub id.
            fit: pad (the full image with black padding, as published) | crop (as CLIP).
            dtype: auto | float32 | float16 | bfloat16; auto: bfloat16 on a GPU.
            batch_size: Images in one forward pass.
        """
        self.clip = Clip(
            load_open_clip(path or FILES[version], VIT_H_14),
            device,
            pixels=resize_and_pad if fit == "pad" else clip_preprocessing(CLIPImageProcessorPil()),
            tokenizer=load_clip_tokenizer(None, processor),
            dtype=dtype,
            batch_size=batch_size,
        )


def convert(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict with transformers' names; unknown names stay.

    The prefix `module.` of DistributedDataParallel, and the causal mask that older versions saved,
    are removed.
    """
    converted: dict[str, Tensor] = {}
    for full_name, tensor in weights.items():
        name = full_name.removeprefix("module.")
        layer, fused, kind = renamed(name, _RENAMED).partition("in_proj_")
        if name in _PROJECTIONS:
            converted[_PROJECTIONS[name]] = tensor.T.contiguous()
        elif fused:
            thirds = zip("qkv", tensor.chunk(3), strict=True)
            converted |= {f"{layer}{letter}_proj.{kind}": third for letter, third in thirds}
        elif name != "attn_mask":
            converted[layer] = tensor
    return converted


def load_open_clip(path: str, config: Mapping[str, Any]) -> Any:
    """The `CLIPModel` of an open_clip file, in float32; RewardError unless names and shapes fit."""
    key, what = "reward.path", "ViT-H-14 of open_clip"
    weights = convert(read_weights(path, key=key))
    clip_config = CLIPConfig(**config)
    with torch.device("meta"):
        require_shapes(weights, CLIPModel(clip_config), path=path, key=key, what=what)
    with loading(key, path, what):
        return CLIPModel.from_pretrained(
            None, config=clip_config, state_dict=weights, dtype=torch.float32
        )
