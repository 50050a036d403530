"""LoRA adapters in one safetensors file, with the key names that ComfyUI reads of each family.

Of UNets these are the names of kohya's sd-scripts, with an alpha for each layer. Of transformers
they are diffusers' names, and the scale alpha / rank is multiplied into the matrices, since such
files name no alpha. diffusers and other programs read both.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from diffusers.utils.state_dict_utils import convert_state_dict_to_kohya
from safetensors.torch import save_file
from torch import Tensor

State = Mapping[str, Tensor]


def write_lora_file(path: Path, state: State, *, pipeline: str, rank: int, alpha: float) -> None:
    """Write adapters to one file.

    Args:
        path: the file.
        state: A `[rank, in, ...]` and B `[out, rank, ...]` of each layer, by PEFT's names.
        pipeline: the class of the diffusers pipeline.
        rank: of all adapters.
        alpha: of all adapters; they are scaled by alpha / rank.
    """
    if pipeline in ("StableDiffusionPipeline", "StableDiffusionXLPipeline"):
        content = _unet(state, alpha)
    else:
        content = {f"transformer.{name}": value for name, value in _scaled(state, alpha / rank)}
    header = {"format": "pt", "ss_network_module": "networks.lora"}
    header |= {"ss_network_dim": str(rank), "ss_network_alpha": str(float(alpha))}
    save_file({key: value.contiguous() for key, value in content.items()}, path, header)


def _unet(state: State, alpha: float) -> dict[str, Tensor]:
    content = convert_state_dict_to_kohya({f"unet.{key}": value for key, value in state.items()})
    # the converter writes the rank
    alphas = {key: torch.tensor(float(alpha)) for key in content if key.endswith(".alpha")}
    return {**content, **alphas}


def _scaled(state: State, scale: float) -> list[tuple[str, Tensor]]:
    return [(k, v * scale if ".lora_B." in k else v) for k, v in state.items()]
