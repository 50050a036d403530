"""LoRA adapters in one safetensors file, with the key names that other programs read.

- `kohya`: the names of kohya's sd-scripts, with an alpha for each layer. FLUX's are those of the
  original code, in which query, key and value are one layer. diffusers, ComfyUI and others read it.
- `comfyui`: what ComfyUI reads of each family. For SD3 and FLUX these are diffusers' names, and the
  scale alpha / rank is multiplied into the matrices, since such files name no alpha.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from diffusers.utils.state_dict_utils import convert_state_dict_to_kohya
from safetensors.torch import save_file
from torch import Tensor

from rlfactory.utils.errors import ModelError

Style = Literal["kohya", "comfyui"]
State = Mapping[str, Tensor]

# kohya's name of each layer of FLUX and the layers that it fuses, in their order
_FLUX: Mapping[str, Mapping[str, Sequence[str]]] = {
    r"transformer_blocks\.(\d+)": {
        "double_blocks_{}_img_attn_qkv": ("attn.to_q", "attn.to_k", "attn.to_v"),
        "double_blocks_{}_img_attn_proj": ("attn.to_out.0",),
        "double_blocks_{}_img_mlp_0": ("ff.net.0.proj",),
        "double_blocks_{}_img_mlp_2": ("ff.net.2",),
        "double_blocks_{}_img_mod_lin": ("norm1.linear",),
        "double_blocks_{}_txt_attn_qkv": ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"),
        "double_blocks_{}_txt_attn_proj": ("attn.to_add_out",),
        "double_blocks_{}_txt_mlp_0": ("ff_context.net.0.proj",),
        "double_blocks_{}_txt_mlp_2": ("ff_context.net.2",),
        "double_blocks_{}_txt_mod_lin": ("norm1_context.linear",),
    },
    r"single_transformer_blocks\.(\d+)": {
        "single_blocks_{}_linear1": ("attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"),
        "single_blocks_{}_linear2": ("proj_out",),
        "single_blocks_{}_modulation_lin": ("norm.linear",),
    },
}


def write_lora_file(
    path: Path,
    state: State,
    *,
    style: Style,
    pipeline: str,
    rank: int,
    alpha: float,
    width: Callable[[str], int],
) -> None:
    """Write adapters to one file.

    Args:
        path: the file.
        state: A `[rank, in, ...]` and B `[out, rank, ...]` of each layer, by PEFT's names.
        style: whose key names.
        pipeline: the class of the diffusers pipeline.
        rank: of all adapters.
        alpha: of all adapters; they are scaled by alpha / rank.
        width: the output features of a layer of the network, by its name.

    Raises:
        ModelError: the style has no names for an adapted layer.
    """
    if pipeline in ("StableDiffusionPipeline", "StableDiffusionXLPipeline"):
        content = _unet(state, alpha)  # ComfyUI has no other names for the UNet's attention
    elif style == "comfyui":
        content = {f"transformer.{name}": value for name, value in _scaled(state, alpha / rank)}
    elif pipeline in ("FluxPipeline", "FluxKontextPipeline"):
        content = _flux(state, alpha, width)
    else:
        raise ModelError(
            "--format kohya: diffusers and ComfyUI have no common names of this format for"
            f" {pipeline}; type --format comfyui, whose file both read"
        )
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


def _flux(state: State, alpha: float, width: Callable[[str], int]) -> dict[str, Tensor]:
    adapters = {key.rpartition(".lora_A")[0] for key in state if ".lora_A." in key}
    content: dict[str, Tensor] = {}
    for block, names in _FLUX.items():
        for prefix in sorted({m[0] for name in adapters if (m := re.match(block + r"\.", name))}):
            index = re.findall(r"\d+", prefix)[0]
            for name, parts in names.items():
                layers = [prefix + part for part in parts]
                if adapters.isdisjoint(layers):
                    continue
                key = f"lora_unet_{name.format(index)}"
                down, up = _fused(state, layers, width)
                content |= {f"{key}.lora_down.weight": down, f"{key}.lora_up.weight": up}
                # as many times the rank as layers, and so the alpha
                content[f"{key}.alpha"] = torch.tensor(float(alpha) * len(layers))
                adapters -= {*layers}
    if adapters:
        raise ModelError(
            f"--format kohya: its format has no name for {min(adapters)}; type --format comfyui"
        )
    return content


def _fused(
    state: State, layers: Sequence[str], width: Callable[[str], int]
) -> tuple[Tensor, Tensor]:
    """Adapters of layers with one input as those of one layer: `[n r, in]`, and block-diagonal
    `[sum of outs, n r]`. A layer without an adapter has zeros.
    """
    present = next(layer for layer in layers if f"{layer}.lora_A.weight" in state)
    no_down = torch.zeros_like(state[f"{present}.lora_A.weight"])
    downs = [state.get(f"{layer}.lora_A.weight", no_down) for layer in layers]
    ups = [
        state[f"{layer}.lora_B.weight"]
        if f"{layer}.lora_B.weight" in state
        else no_down.new_zeros(width(layer), len(no_down))
        for layer in layers
    ]
    return torch.cat(downs), torch.block_diag(*ups)  # type: ignore[no-untyped-call]
