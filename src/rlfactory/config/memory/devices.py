"""GPUs by their data sheets, which one a run has and how much memory; what errors mean that it ran
out. Imports no torch.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.checks.base import Config
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


USABLE_FRACTION = 0.94
"""The fraction of a GPU that a run can use; the CUDA context and fragmentation take the rest."""
OUT_OF_MEMORY_MESSAGES = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def available_memory(config: Config) -> tuple[float | None, str]:
    """The device's memory in bytes, None if it is not known on this machine; and its name.

    `hardware.memory_gb` overrides that of `hardware.gpu`, and both what is detected. Of several
    visible GPUs the smallest counts.
    """
    node = config["hardware"]
    if (given := node.get("memory_gb")) is not None:
        return float(given) * GIB, "the device"
    if (name := named_gpu(config)) is not None:
        return gpu_models()[name].memory, f"the {name}"
    if node.get("device") != "cpu" and (gpus := visible_gpus()):
        sizes = [gpu.memory_mib for gpu in gpus if gpu.memory_mib is not None]
        return min(sizes) * 2.0**20 if len(sizes) == len(gpus) else None, "the GPU"
    if node.get("device") == "cuda":
        return None, "the GPU"
    return _physical_memory(), "this machine"


def on_gpu(config: Config) -> bool:
    """Whether the run will use a GPU, as far as this machine can tell."""
    node = config["hardware"]
    device, is_planned = node.get("device"), node.get("memory_gb") is not None
    is_there = is_planned or named_gpu(config) is not None or bool(visible_gpus())
    return device == "cuda" or (device != "cpu" and is_there)


def describe_device(config: Config) -> str:
    """The device that a run would use here, in words."""
    node = config["hardware"]
    if (named := named_gpu(config)) is not None:
        return f"{named}, as hardware.gpu says"
    if not on_gpu(config):
        asked = node.get("device") == "cpu"
        return "the CPU" if asked else "the CPU: no GPU was found"
    gpus = visible_gpus()
    if not gpus:
        return "a GPU; none was found here"
    sizes = {gpu.memory_mib for gpu in gpus}
    memory = "" if None in sizes else " of " + " and ".join(f"{s / 1024:.0f}" for s in sizes if s)
    return f"{len(gpus)} GPU{'s' * (len(gpus) > 1)}{memory}{' GiB' if memory else ''}"


def named_gpu(config: Config) -> str | None:
    """The GPU that `hardware.gpu` names for the plan; None if it names none."""
    name = config["hardware"].get("gpu")
    return name if name in gpu_models() else None


def _physical_memory() -> float | None:
    """The machine's memory in bytes; None where the system does not report it."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device, or the machine, ran out of memory.

    Errors are recognised by class name and message, and also as the cause of another error, since
    some libraries wrap them.
    """
    by_class = type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError)
    by_message = isinstance(error, RuntimeError) and any(
        message in str(error) for message in OUT_OF_MEMORY_MESSAGES
    )
    cause = error.__cause__
    return by_class or by_message or (cause is not None and is_out_of_memory(cause))
