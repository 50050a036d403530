"""GPUs by name, with the figures of their data sheets, and the one that a configuration names."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlfactory.hardware.environment import visible_gpus

DEVICES_FILE = Path(__file__).with_name("devices.yaml")
GIB = 2**30
COLUMNS = {
    **{"half": ("bf16", 1e12), "single": ("fp32", 1e12), "tf32": ("tf32", 1e12)},
    **{"memory": ("memory", GIB), "bandwidth": ("bandwidth", 1e9), "link": ("link", 1e9)},
}
"""Columns of the file with their units."""


@dataclass(frozen=True)
class GPUModel:
    """A kind of GPU.

    Attributes:
        name: the word of `hardware.gpu`.
        matches: parts of the name by which nvidia-smi reports it, in lower case.
        half: peak of matrix products in bfloat16 or float16, dense, in FLOP/s.
        single: the same in float32.
        tf32: the same in TF32, which rounds the factors of float32 products.
        memory: bytes.
        bandwidth: of its memory, in bytes/s.
        link: bandwidth to another GPU of the machine, one way, in bytes/s.
        source: where the figures are published.
    """

    name: str
    matches: tuple[str, ...]
    half: float
    single: float
    tf32: float
    memory: float
    bandwidth: float
    link: float
    source: str


@cache
def gpu_models() -> Mapping[str, GPUModel]:
    """All GPUs that can be named."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
    text = DEVICES_FILE.read_text(encoding="utf-8")
    table: dict[str, dict[str, Any]] = yaml.load(text, Loader=loader)
    return {
        name: GPUModel(
            name,
            tuple(row["matches"]),
            source=row["source"],
            **{ours: row[column] * unit for ours, (column, unit) in COLUMNS.items()},
        )
        for name, row in table.items()
    }


def gpu_by_driver_name(reported: str) -> GPUModel | None:
    """The GPU that nvidia-smi reports as `reported`; None if it is not in the table.

    Of several entries that match, the one that matches most letters is meant ("GH200" also
    contains "h200").
    """
    words = reported.lower()
    fitting = [gpu for gpu in gpu_models().values() if all(part in words for part in gpu.matches)]
    return max(fitting, key=lambda gpu: sum(map(len, gpu.matches)), default=None)


def gpu_of(hardware: Mapping[str, Any]) -> GPUModel | None:
    """The GPU of `hardware.gpu`, or with `auto` the one that this machine has; None if unknown."""
    named = hardware.get("gpu", "auto")
    if named in gpu_models():
        return gpu_models()[named]
    if named != "auto" or hardware.get("device") == "cpu":
        return None
    gpus = visible_gpus()
    return gpu_by_driver_name(gpus[0].name) if gpus else None
