"""HPSv3's network: Qwen2-VL with a head at a special token, by the names of the published file."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen2VLConfig, Qwen2VLModel
from transformers.models.qwen2_vl.modeling_qwen2_vl import (
    Qwen2VLRotaryEmbedding,
    Qwen2VLVisionRotaryEmbedding,
)

HEAD = "rm_head."
# names of transformers before 4.52, in which the file was written
_RENAMED = (
    (r"^visual\.", "model.visual."),
    (r"^model\.(?!visual\.|language_model\.)", "model.language_model."),
)


class HPSv3Network(nn.Module):
    """Qwen2-VL without its output layer, and HPSv3's head: `mu` and the logarithm of `sigma`.

    Positions of all tokens, of the image's too, count from 0: as published, whose forward pass
    does not compute Qwen2-VL's positions in three dimensions. The head is float32.
    """

    def __init__(self, config: Qwen2VLConfig, widths: Sequence[int]) -> None:
        super().__init__()
        self.model = Qwen2VLModel(config)
        first, second, outputs = widths
        self.rm_head = nn.Sequential(
            nn.Linear(config.text_config.hidden_size, first),
            nn.ReLU(),
            nn.Dropout(0.05),
            nn.Linear(first, second),
            nn.ReLU(),
            nn.Linear(second, outputs),
        )

    def forward(self, ids: Tensor, mask: Tensor, scored: int, **pixels: Tensor) -> Tensor:
        """`mu` `[B]`, at the token `scored`, which is once in each row of `ids` `[B, L]`."""
        positions = torch.arange(ids.shape[1], device=ids.device).expand(3, *ids.shape)
        states = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False, **pixels
        ).last_hidden_state
        found: Tensor = self.rm_head(states[ids == scored].float())[:, 0]
        return found


def load_hpsv3(
    state: Mapping[str, Tensor], config: Qwen2VLConfig, dtype: torch.dtype
) -> HPSv3Network:
    """A frozen network with published weights, the head in float32 and the rest in `dtype`.

    The output layer of the language model is left out. RuntimeError or KeyError where names or
    shapes do not match.
    """
    weights = {_rename(name): tensor for name, tensor in state.items() if name != "lm_head.weight"}
    embedded = weights["model.language_model.embed_tokens.weight"]
    config.text_config.vocab_size = len(embedded)  # cut to the tokenizer's length
    widths = [len(weights[f"{HEAD}{layer}.bias"]) for layer in (0, 3, 5)]
    with torch.device("meta"):
        network = HPSv3Network(config, widths)
    cast = {
        name: tensor.to(torch.float32 if name.startswith(HEAD) else dtype)
        for name, tensor in weights.items()
    }
    network.load_state_dict(cast, strict=True, assign=True)
    # of these, no buffer is in the file
    text: Any = network.model.language_model
    text.rotary_emb = Qwen2VLRotaryEmbedding(config.text_config)
    network.model.visual.rotary_pos_emb = Qwen2VLVisionRotaryEmbedding(config.vision_config)
    return network.eval().requires_grad_(False)


def _rename(name: str) -> str:
    for pattern, replacement in _RENAMED:
        name = re.sub(pattern, replacement, name)
    return name
