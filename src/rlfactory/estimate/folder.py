"""What a model consists of, read from its folder's headers and configurations or, for a published
one, from a table: nothing is loaded.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlfactory.model.places import folder_of

HERE = Path(__file__).parent
NETWORKS = ("transformer", "unet")
LARGEST_HEADER = 100 * 2**20


@dataclass(frozen=True)
class Part:
    """A network of a pipeline: how many numbers it holds, and its configuration."""

    parameters: int
    config: Mapping[str, Any]


@cache
def published() -> dict[str, Any]:
    """Published pipelines by a short name: hub ids, classes, configurations, parameter counts."""
    found: dict[str, Any] = json.loads((HERE / "published.json").read_text(encoding="utf-8"))
    return found


def parts_of(path: str) -> Mapping[str, Part] | None:
    """The networks of `zoo:NAME`, of a folder, or of a hub id that is known or was downloaded.

    None where nothing can be known without loading.
    """
    for pipeline in published().values():
        if path in pipeline["hub"]:
            return {n: Part(p["parameters"], p["config"]) for n, p in pipeline["parts"].items()}
    folder = folder_of(path)
    try:
        return None if folder is None else _folder_parts(folder)
    except (OSError, ValueError, KeyError, struct.error):
        return None


def _folder_parts(folder: Path) -> Mapping[str, Part]:
    index = json.loads((folder / "model_index.json").read_text(encoding="utf-8"))
    found = {}
    for name in index:
        config = folder / name / "config.json"
        if config.is_file() and index[name][0] is not None:
            count = numbers_in(folder / name)
            found[name] = Part(count, json.loads(config.read_text(encoding="utf-8")))
    return found


def numbers_in(folder: Path) -> int:
    """How many numbers the safetensors files of a folder hold; ValueError where it has none.

    Where the same weights lie there in several precisions (`.fp16.`), one of them is counted.
    """
    files = sorted(folder.glob("*.safetensors"))
    plain = [f for f in files if not {"fp16", "bf16"} & set(f.name.split("."))]
    if not files:
        raise ValueError(f"{folder} holds no safetensors")
    return sum(sum(map(math.prod, shapes(file).values())) for file in plain or files)


def shapes(file: Path) -> dict[str, list[int]]:
    """The tensors of a safetensors file: 8 bytes with the header's length, then JSON."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > LARGEST_HEADER:
            raise ValueError(f"{file} is no safetensors file")
        header = json.loads(stream.read(length))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
