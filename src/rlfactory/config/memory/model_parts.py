"""The networks of a model, read without loading weights: parameters, configuration, activations.

They are those of a folder (by the headers of its safetensors files) or, for a published model, of
published.json and language_models.json, where rows of activations stand beside them;
scripts/bench/activations.py counts these on fake tensors. A model of another architecture names a
file of such rows (`activations` in `model/base.py`).
"""

import inspect
import json
import math
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from rlfactory.config.schema.static_names import module_file
from rlfactory.model.pipelines.adapter_files import count_targets
from rlfactory.model.pipelines.local_models import folder_of, index_of, read_header
from rlfactory.utils.live_objects import is_reference, resolve
from rlfactory.utils.types import LoraTargets

TABLES = Path(__file__).parent
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
NETWORKS = ("transformer", "transformer_2", "unet")
"""Names of the parts that are trained."""
LANGUAGE_MODEL = "language model"
LLAMA_LIKE = {"llama", "mistral", "qwen2", "smollm3", "olmo2", "qwen2_5_vl", "qwen2_5_vl_text"}
"""Architectures whose layers are Llama's, the last two in a network of several parts."""
BLOCKS = (
    *("num_layers", "num_single_layers", "n_layers", "n_refiner_layers"),
    *("num_hidden_layers", "n_layer"),
)
"""Keys of configurations that count blocks."""


@dataclass(frozen=True)
class Part:
    """A network: its number of parameters, its configuration, and its architecture by name."""

    parameters: int
    config: Mapping[str, Any]
    kind: str = ""

    @property
    def blocks(self) -> int:
        """Blocks of a transformer or a U-Net that FSDP2 shards and all-gathers one by one."""
        if "block_out_channels" in self.config:
            return 2 * len(self.config["block_out_channels"])
        return sum(int(self.config.get(name) or 0) for name in BLOCKS)

    @property
    def size(self) -> float:
        """The number that activations grow with: blocks times width."""
        if hidden := self.config.get("hidden_size", self.config.get("n_embd")):
            return float(hidden * self.blocks)
        return math.sqrt(self.parameters * (self.blocks or 1))


class Activations:
    """Bytes of activations of a network, by the row of its architecture nearest in size."""

    def __init__(self, part: Part, tables: Sequence[Path] = ()) -> None:
        own = [row for table in tables for row in _table(table)]
        known = (*own, *language_models(), *published_rows())
        rows = [row for row in known if row["class"] == part.kind]
        if not rows or not part.size:
            raise LookupError(part.kind)
        self.row = min(rows, key=lambda row: abs(math.log(part.size / row["size"])))
        self.scale: float = round(part.size / self.row["size"], 6)

    def learning(self, way: str, latents: float, tokens: float) -> float:
        """The most that a forward and backward pass of an item hold, without its gradient."""
        return self.scale * self._bytes(way, 1, latents, tokens)

    def sampling(self, way: str, latents: float, tokens: float) -> float:
        """The most that a forward pass of an item without a gradient holds: of its widest block."""
        return math.sqrt(self.scale) * self._bytes(way, 0, latents, tokens)

    def _bytes(self, way: str, phase: int, latents: float, tokens: float) -> float:
        of_latent, of_token = self.row[way][phase]
        return float(of_latent * latents + of_token * tokens)

    def decoding(self, pixels: float, frames: int) -> float:
        """The most that decoding an image or a video holds."""
        image, *video = self.row["decoding"]
        rate = image if frames == 1 else video[0] + frames * video[1]
        return float(self.scale * rate * pixels)

    def adapters(self, rank: int, targets: LoraTargets) -> float:
        """Parameters of LoRA adapters. Named `targets` count as if all modules were of one size."""
        default, linear = self.row["targets"]
        count = count_targets(targets, linear) or default
        return float(self.scale * rank * self.row["lora"] * count / default)


@cache
def own_tables(target: str, name: str | None) -> tuple[Path, ...]:
    """The file of rows that an adapter names, beside its own."""
    if not name:
        return ()
    if not is_reference(target):
        return (module_file(target.rpartition(".")[0]).with_name(name),)
    live = resolve(target)
    file = inspect.getfile(live if isinstance(live, type) else type(live))
    return (Path(file).with_name(name),)


@cache
def _table(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def language_models() -> list[dict[str, Any]]:
    """Published language models: hub ids, configurations, parameters, and what activations take."""
    return _table(TABLES / "language_models.json")


def published() -> dict[str, Any]:
    """Published pipelines by a short name: hub ids, classes, configurations, parameter counts."""
    return _table(TABLES / "published.json")


@cache
def published_rows() -> list[dict[str, Any]]:
    """Rows of the activations of published networks and autoencoders, those that were counted."""
    return [
        {"name": name if part in NETWORKS else kind, "class": kind, **described["activations"]}
        for name, pipeline in published().items()
        for part, described in pipeline["parts"].items()
        if "activations" in described
        for kind in [described["class"].rpartition(".")[2]]
    ]


def published_as(path: str) -> Mapping[str, Any]:
    """The published pipeline of a hub id; empty for any other path."""
    return next((pipeline for pipeline in published().values() if path in pipeline["hub"]), {})


def published_pipeline(path: str) -> str | None:
    """The pipeline class of a published hub id; None for any other path."""
    return str(published_as(path).get("pipeline", "")).rpartition(".")[2] or None


def published_part(path: str, pipeline: str, name: str) -> Mapping[str, Any]:
    """A part's configuration of a published hub id; of another, what its family has in common."""
    of_kind = [p for p in published().values() if p["pipeline"] == f"diffusers.{pipeline}"]
    named = [p for p in of_kind if path in p["hub"]][:1] or of_kind
    first, *others = [dict(p["parts"].get(name, {}).get("config", {})) for p in named] or [{}]
    return {k: v for k, v in first.items() if all(o.get(k) == v for o in others)}


def published_scheduler(path: str) -> Mapping[str, Any]:
    """The scheduler's configuration of a published hub id; empty for any other path."""
    if not (found := published_as(path).get("scheduler")):
        return {}
    return {"_class_name": found["class"].rpartition(".")[2], **found["config"]}


def parts_of(path: str) -> Mapping[str, Part] | None:
    """The networks by name, of `zoo:NAME`, a folder, or a hub id that is published or downloaded;
    of a language model one, `LANGUAGE_MODEL`.

    None if nothing is known without loading.
    """
    if found := published_as(path):
        return {
            name: Part(p["parameters"], p["config"], p["class"].rpartition(".")[2])
            for name, p in found["parts"].items()
        }
    for row in language_models():
        if path in row["hub"]:
            return {LANGUAGE_MODEL: _language_part(row["config"], row["parameters"])}
    folder = folder_of(path)
    with suppress(OSError, ValueError, KeyError, struct.error):
        return None if folder is None else _folder_parts(folder)
    return None


@lru_cache(maxsize=64)  # a plan asks several times
def _folder_parts(folder: Path) -> Mapping[str, Part]:
    if not (index := index_of(folder)):
        return {LANGUAGE_MODEL: _language_part(_config(folder), count_parameters(folder))}
    parts = {}
    for name in index:
        if (folder / name / "config.json").is_file() and (index[name] or [None])[0] is not None:
            config = _config(folder / name)
            kind = str(config.get("_class_name") or index[name][1])
            parts[name] = Part(count_parameters(folder / name), config, kind)
    return parts


def _config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def _language_part(config: Mapping[str, Any], parameters: int) -> Part:
    own = {**config, **(config.get("text_config") or {})}  # of a network of several parts
    return Part(parameters, own, architecture(own))


def architecture(config: Mapping[str, Any]) -> str:
    """The name by which rows of activations have a language model's architecture."""
    kind = str(config.get("model_type", ""))
    return "llama" if kind in LLAMA_LIKE else kind


def language_model(path: object) -> Part | None:
    """The network of a language model; None where it is not known."""
    return (parts_of(path) or {}).get(LANGUAGE_MODEL) if isinstance(path, str) else None


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
