"""The networks of a pipeline, their parameter counts, and how many parameters are trained.

Read from the safetensors headers and configurations of a folder or, for a published pipeline, from
published.json; no weights are loaded.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from rlfactory.config.memory.activations import Config, family_of, unet_blocks
from rlfactory.model.pipelines.adapter_files import count_targets
from rlfactory.model.pipelines.local_models import folder_of
from rlfactory.model.pipelines.safetensors_header import read_header
from rlfactory.utils.types import LoraTargets

PUBLISHED_FILE = Path(__file__).with_name("published.json")
NETWORKS = ("transformer", "unet")
"""Names of the part that is trained."""
ADAPTED_PROJECTIONS = {
    **{"flux": 8, "flux2": 9, "sd3": 8, "qwen_image": 8, "z_image": 4},
    **{"sana": 8, "wan": 8, "unet": 4},
}
"""Kinds of projections that have LoRA adapters where `lora_targets` names none."""


@dataclass(frozen=True)
class Part:
    """A network of a pipeline: its number of parameters and its configuration."""

    parameters: int
    config: Mapping[str, Any]


@cache
def published() -> dict[str, Any]:
    """Published pipelines by a short name: hub ids, classes, configurations, parameter counts."""
    content: dict[str, Any] = json.loads(PUBLISHED_FILE.read_text(encoding="utf-8"))
    return content


def published_pipeline(path: str) -> str | None:
    """The pipeline class of a published hub id; None for any other path."""
    for pipeline in published().values():
        if path in pipeline["hub"]:
            return str(pipeline["pipeline"]).rpartition(".")[2]
    return None


def published_part(path: str, pipeline: str, name: str) -> Mapping[str, Any]:
    """A part's configuration of a published hub id; of another, what its family has in common."""
    of_kind = [p for p in published().values() if p["pipeline"] == f"diffusers.{pipeline}"]
    known = [dict(p["parts"].get(name, {}).get("config", {})) for p in of_kind if path in p["hub"]]
    if known:
        return known[0]
    others = [dict(p["parts"].get(name, {}).get("config", {})) for p in of_kind]
    return {k: v for k, v in (others or [{}])[0].items() if all(o.get(k) == v for o in others)}


def published_scheduler(path: str) -> Mapping[str, Any]:
    """The scheduler's configuration of a published hub id; empty for any other path."""
    for pipeline in published().values():
        if path in pipeline["hub"]:
            name = pipeline["scheduler"]["class"].rpartition(".")[2]
            return {"_class_name": name, **pipeline["scheduler"]["config"]}
    return {}


def parts_of(path: str) -> Mapping[str, Part] | None:
    """The networks by name, of `zoo:NAME`, a folder, or a hub id that is published or downloaded.

    None if nothing is known without loading.
    """
    for pipeline in published().values():
        if path in pipeline["hub"]:
            return {n: Part(p["parameters"], p["config"]) for n, p in pipeline["parts"].items()}
    folder = folder_of(path)
    try:
        return None if folder is None else _folder_parts(folder)
    except (OSError, ValueError, KeyError, struct.error):
        return None


@lru_cache(maxsize=64)  # a plan asks several times
def _folder_parts(folder: Path) -> Mapping[str, Part]:
    index = json.loads((folder / "model_index.json").read_text(encoding="utf-8"))
    parts = {}
    for name in index:
        config = folder / name / "config.json"
        if config.is_file() and (index[name] or [None])[0] is not None:
            count = count_parameters(folder / name)
            parts[name] = Part(count, json.loads(config.read_text(encoding="utf-8")))
    return parts


def count_parameters(folder: Path) -> int:
    """The number of parameters in the safetensors files of a folder.

    Where a folder has the same weights in several precisions (`.fp16.`), one of them is counted.

    Raises:
        ValueError: if the folder has no safetensors files.
    """
    files = sorted(folder.glob("*.safetensors"))
    full_precision = [f for f in files if not {"fp16", "bf16"} & set(f.name.split("."))]
    if not files:
        raise ValueError(f"{folder} holds no safetensors")
    return sum(sum(map(math.prod, shapes(file).values())) for file in full_precision or files)


def shapes(file: Path) -> dict[str, list[int]]:
    """The shapes of a safetensors file's tensors, from its header."""
    header = read_header(file)
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def trainable_parameters(network: Part, finetune: str, rank: int, targets: LoraTargets) -> float:
    """The number of trained parameters: all of the network's, or those of its LoRA adapters.

    Named `targets` count as their share of the default ones, as if all were of one size.
    """
    if finetune == "full":
        return network.parameters
    family = family_of(network.config)
    own = ADAPTED_PROJECTIONS[family]
    share = (count_targets(targets, linear=2 * own) or own) / own
    formulas = {
        "flux": _flux_lora,
        "flux2": _flux2_lora,
        "sd3": _sd3_lora,
        "qwen_image": _qwen_image_lora,
        "z_image": _z_image_lora,
        "sana": _qwen_image_lora,
        "wan": _wan_lora,
        "unet": _unet_lora,
    }
    return share * rank * formulas[family](network.config)


def _flux_lora(network: Config) -> int:
    """The eight attention projections of a double block, three of a single one; all square."""
    width = network["num_attention_heads"] * network["attention_head_dim"]
    return int(2 * width * (8 * network["num_layers"] + 3 * network["num_single_layers"]))


def _flux2_lora(network: Config) -> int:
    """The eight attention projections of a double block; of a single one the layer that gives
    query, key, value and twice three times the width.
    """
    width = network["num_attention_heads"] * network["attention_head_dim"]
    return int(width * (16 * network["num_layers"] + 10 * network["num_single_layers"]))


def _sd3_lora(network: Config) -> int:
    """The eight attention projections of a joint block; the last one has no text output."""
    width = network["num_attention_heads"] * network["attention_head_dim"]
    return int(2 * width * (8 * network["num_layers"] - 1))


def _qwen_image_lora(network: Config) -> int:
    """The eight attention projections of a block, as many in SANA; all square."""
    width = network["num_attention_heads"] * network["attention_head_dim"]
    return int(2 * width * 8 * network["num_layers"])


def _z_image_lora(network: Config) -> int:
    """The four attention projections of a block, also of those on image and text alone."""
    return int(2 * network["dim"] * 4 * (network["n_layers"] + 2 * network["n_refiner_layers"]))


def _wan_lora(network: Config) -> int:
    """The four projections of self- and of cross-attention; all square."""
    width = network["num_attention_heads"] * network["attention_head_dim"]
    return int(2 * width * 8 * network["num_layers"])


def _unet_lora(network: Config) -> int:
    """The four of self- and of cross-attention, whose keys and values come from the text."""
    text = network["cross_attention_dim"]
    blocks = unet_blocks(network, 64**2)
    widths = [width for kind, _, width, _ in blocks if kind in ("transformer", "layer")]
    return int(sum(14 * width + 2 * text for width in widths))
