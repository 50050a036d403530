"""BLIP's encoder of a text that looks at a picture, with a score on top, from published weights.

The published file names its tensors as BLIP's own code does (Li et al. 2022); the networks here are
those of transformers. Sizes are read off the tensors.
"""

import re
from collections.abc import Mapping
from math import isqrt

import torch
from torch import Tensor, nn
from transformers import BlipTextConfig, BlipTextModel, BlipVisionConfig, BlipVisionModel

from rlfactory.reward.rating_head import rating_layers

_HEAD_WIDTH = 64  # of each attention head, in BLIP-base and BLIP-large, of pictures and of texts
_RENAMED = (
    (r"^blip\.visual_encoder\.(?=blocks\.)", "vision.encoder."),
    (r"^blip\.visual_encoder\.cls_token$", "vision.embeddings.class_embedding"),
    (r"^blip\.visual_encoder\.pos_embed$", "vision.embeddings.position_embedding"),
    (r"^blip\.visual_encoder\.patch_embed\.proj\.", "vision.embeddings.patch_embedding."),
    (r"^blip\.visual_encoder\.norm\.", "vision.post_layernorm."),
    (r"^vision\.encoder\.blocks\.", "vision.encoder.layers."),
    (r"(?<=\d)\.norm(?=[12]\.)", ".layer_norm"),
    (r"(?<=\d)\.attn\.proj\.", ".self_attn.projection."),
    (r"(?<=\d)\.attn\.qkv\.", ".self_attn.qkv."),
    (r"^blip\.text_encoder\.", "text."),
    (r"^mlp\.layers\.", "mlp."),
)
"""From published names to those of `Rater`, one after the other."""


class Rater(nn.Module):
    """One number for a text and a picture: a linear head on what the text's first token becomes
    when the text attends to the picture.
    """

    def __init__(self, vision: BlipVisionConfig, text: BlipTextConfig) -> None:
        super().__init__()
        self.vision = BlipVisionModel(vision)
        self.text = BlipTextModel(text, add_pooling_layer=False)
        self.mlp = rating_layers(text.hidden_size)

    def forward(self, pixels: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """Raw scores `[B]` float32 of pictures `[B, 3, S, S]` and tokens `[B, L]` with a mask."""
        seen = self.vision(pixel_values=pixels).last_hidden_state
        read = self.text(input_ids=tokens, attention_mask=mask, encoder_hidden_states=seen)
        score: Tensor = self.mlp(read.last_hidden_state[:, 0].float())[:, 0]
        return score


def published_rater(state: Mapping[str, Tensor], dtype: torch.dtype) -> Rater:
    """A frozen `Rater` with published weights, the head in float32, the rest in `dtype`.
    RuntimeError or KeyError where they are not its own.

    What belongs to BLIP's other tasks is passed over.
    """
    with torch.device("meta"):
        rater = Rater(_vision_config(state), _text_config(state))
    rater.load_state_dict(_renamed(state), strict=True, assign=True)
    embeddings = rater.text.embeddings  # its one buffer is no weight
    embeddings.position_ids = torch.arange(embeddings.position_ids.shape[1])[None]
    rater.vision.to(dtype)
    rater.text.to(dtype)
    rater.mlp.float()
    return rater.eval().requires_grad_(False)


def _vision_config(state: Mapping[str, Tensor]) -> BlipVisionConfig:
    part = "blip.visual_encoder."
    width, _, patch, _ = state[part + "patch_embed.proj.weight"].shape
    places = state[part + "pos_embed"].shape[1] - 1
    return BlipVisionConfig(
        hidden_size=width,
        intermediate_size=len(state[part + "blocks.0.mlp.fc1.bias"]),
        num_hidden_layers=_layers(state, part + "blocks."),
        num_attention_heads=width // _HEAD_WIDTH,
        image_size=isqrt(places) * patch,
        patch_size=patch,
        layer_norm_eps=1e-6,  # BLIP's own; transformers' default is another
    )


def _text_config(state: Mapping[str, Tensor]) -> BlipTextConfig:
    part = "blip.text_encoder."
    vocabulary, width = state[part + "embeddings.word_embeddings.weight"].shape
    layer = part + "encoder.layer.0."
    return BlipTextConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        encoder_hidden_size=state[layer + "crossattention.self.key.weight"].shape[1],
        intermediate_size=len(state[layer + "intermediate.dense.bias"]),
        num_hidden_layers=_layers(state, part + "encoder.layer."),
        num_attention_heads=width // _HEAD_WIDTH,
        max_position_embeddings=len(state[part + "embeddings.position_embeddings.weight"]),
    )


def _layers(state: Mapping[str, Tensor], prefix: str) -> int:
    return len({name[len(prefix) :].split(".")[0] for name in state if name.startswith(prefix)})


def _renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that score, by the names of `Rater`."""
    parts = ("blip.visual_encoder.", "blip.text_encoder.", "mlp.")
    scoring = {name: tensor for name, tensor in state.items() if name.startswith(parts)}
    # a buffer, which older versions of torch saved and which transformers makes anew
    scoring.pop("blip.text_encoder.embeddings.position_ids", None)
    return {_rename(name): tensor for name, tensor in scoring.items()}


def _rename(name: str) -> str:
    for pattern, replacement in _RENAMED:
        name = re.sub(pattern, replacement, name)
    return name
