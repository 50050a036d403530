"""BLIP's image-grounded text encoder (Li et al. 2022) with a scoring head: ImageReward's network.

The published file names its tensors as BLIP's own code does; the networks here are those of
transformers. Sizes are read off the tensors.
"""

from collections import OrderedDict
from collections.abc import Mapping
from itertools import pairwise
from math import isqrt

import torch
from torch import Tensor, nn
from transformers import BlipTextConfig, BlipTextModel, BlipVisionConfig, BlipVisionModel

from rlfactory.reward.backbones.pretrained import renamed

INNER = (1024, 128, 64, 16, 1)
# positions in the published nn.Sequential; those between are dropouts, left out for inference
_NAMES = ("0", "2", "4", "6", "7")


def rating_layers(width: int) -> nn.Sequential:
    """Embeddings `[B, width]` to ratings `[B, 1]`; layers are named as in the published files."""
    sizes = zip(_NAMES, pairwise((width, *INNER)), strict=True)
    return nn.Sequential(OrderedDict((name, nn.Linear(*size)) for name, size in sizes))


_HEAD_WIDTH = 64  # of each attention head in both encoders of BLIP-base and BLIP-large
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
"""Substitutions from published names to those of `BlipScorer`, applied in order."""


class BlipScorer(nn.Module):
    """One number for a text and an image: a head on the text's first token, after the text encoder
    with cross-attention to the image.
    """

    def __init__(self, vision: BlipVisionConfig, text: BlipTextConfig) -> None:
        super().__init__()
        self.vision = BlipVisionModel(vision)
        self.text = BlipTextModel(text, add_pooling_layer=False)
        self.mlp = rating_layers(text.hidden_size)

    def forward(self, pixels: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """Raw scores `[B]` float32 of images `[B, 3, S, S]` and tokens `[B, L]` with a mask."""
        image = self.vision(pixel_values=pixels).last_hidden_state
        text = self.text(input_ids=tokens, attention_mask=mask, encoder_hidden_states=image)
        # the head is float32 whatever the precision of the encoders
        score: Tensor = self.mlp(text.last_hidden_state[:, 0].float())[:, 0]
        return score


def load_blip_scorer(state: Mapping[str, Tensor], dtype: torch.dtype) -> BlipScorer:
    """A frozen `BlipScorer` with published weights, the head in float32, the encoders in `dtype`.

    Tensors of BLIP's other tasks are ignored. RuntimeError or KeyError where names or shapes do not
    match.
    """
    with torch.device("meta"):
        scorer = BlipScorer(_vision_config(state), _text_config(state))
    scorer.load_state_dict(_renamed(state), strict=True, assign=True)
    # the one buffer is not in the file, and still on the meta device
    embeddings = scorer.text.embeddings
    embeddings.position_ids = torch.arange(embeddings.position_ids.shape[1])[None]
    scorer.vision.to(dtype)
    scorer.text.to(dtype)
    scorer.mlp.float()
    return scorer.eval().requires_grad_(False)


def _vision_config(state: Mapping[str, Tensor]) -> BlipVisionConfig:
    part = "blip.visual_encoder."
    width, _, patch, _ = state[part + "patch_embed.proj.weight"].shape
    patches = state[part + "pos_embed"].shape[1] - 1  # one position is the class token's
    return BlipVisionConfig(
        hidden_size=width,
        intermediate_size=len(state[part + "blocks.0.mlp.fc1.bias"]),
        num_hidden_layers=_layers(state, part + "blocks."),
        num_attention_heads=width // _HEAD_WIDTH,
        image_size=isqrt(patches) * patch,
        patch_size=patch,
        layer_norm_eps=1e-6,  # BLIP's; transformers' default differs
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
    """The tensors of the scoring network, by the names of `BlipScorer`."""
    parts = ("blip.visual_encoder.", "blip.text_encoder.", "mlp.")
    scoring = {name: tensor for name, tensor in state.items() if name.startswith(parts)}
    # a buffer, which is persistent in the older code that wrote the file
    scoring.pop("blip.text_encoder.embeddings.position_ids", None)
    return {renamed(name, _RENAMED): tensor for name, tensor in scoring.items()}
