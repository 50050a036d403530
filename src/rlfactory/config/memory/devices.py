"""GPUs by their data sheets; which devices a run has, how many processes and what each holds; what
errors mean that memory ran out. Imports no torch.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlfactory.config.checks.base import Config
from rlfactory.hardware.process_environment import (
    AUTO,
    auto_processes,
    is_distributed,
    lacks_gpu,
    process_info,
    visible_gpus,
)
from rlfactory.utils.data_files import load_yaml
from rlfactory.utils.text import plural

DEVICES_FILE = Path(__file__).with_name("devices.yaml")
GIB = 2**30


@dataclass(frozen=True)
class GPUModel:
    """A kind of GPU, as the file describes it.

    Attributes:
        name: the word of `hardware.gpu`.
        matches: parts of the name by which nvidia-smi reports it, in lower case.
        bf16, fp32, tf32: dense peaks of matrix products, in TFLOP/s.
        memory: GiB.
        bandwidth: of its memory, in GB/s.
        source: where the figures are published.
    """

    name: str
    matches: Sequence[str]
    bf16: float
    fp32: float
    tf32: float
    memory: float
    bandwidth: float
    source: str


@cache
def gpu_models() -> Mapping[str, GPUModel]:
    """All GPUs that can be named."""
    rows = load_yaml(DEVICES_FILE.read_text(encoding="utf-8"))
    return {name: GPUModel(name, **row) for name, row in rows.items()}


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
    gpus = visible_gpus() if named == "auto" and hardware.get("device") != "cpu" else []
    return gpu_by_driver_name(gpus[0].name) if gpus else gpu_models().get(named)


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
        return gpu_models()[name].memory * GIB, f"the {name}"
    gpus = [] if node.get("device") == "cpu" else visible_gpus()
    if gpus or node.get("device") == "cuda":
        sizes = [gpu.memory_mib for gpu in gpus if gpu.memory_mib is not None]
        return min(sizes) * 2.0**20 if sizes and len(sizes) == len(gpus) else None, "the GPU"
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
    known = " and ".join(f"{size / 1024:.0f}" for size in sizes if size is not None)
    return plural(len(gpus), "GPU") + ("" if None in sizes else f" of {known} GiB")


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
    said = str(error) if isinstance(error, RuntimeError) else ""
    by_message = any(message in said for message in OUT_OF_MEMORY_MESSAGES)
    cause = error.__cause__
    return by_class or by_message or (cause is not None and is_out_of_memory(cause))


def processes_of(config: Config) -> int:
    """The number of processes."""
    return int(config["hardware"].get("processes", 1))


def with_process_count(values: dict[str, Any]) -> dict[str, Any]:
    """Values with a number in the place of `hardware.processes=auto`.

    They are part of composing, before anything is checked or frozen: a run resumes with the number
    that it began with.
    """
    node = values.get("hardware")
    if not isinstance(node, dict) or not is_distributed(node) or node.get("processes") != AUTO:
        return values
    return {**values, "hardware": {**node, "processes": auto_processes(node)}}


def describe_processes(config: Config) -> str | None:
    """A row of the plan; None for one process on a machine with at most one GPU."""
    node = config["hardware"]
    gpus = 0 if node.get("device") == "cpu" else len(visible_gpus())
    if not is_distributed(node):
        return f"1 of {gpus} GPUs; hardware=ddp uses all" if gpus > 1 else None
    count, name = node["processes"], named_gpu(config)
    if process_info(node) is not None:  # perhaps on several machines
        here = f"; {plural(gpus, 'GPU')} here" if gpus else ""
        return f"{count}, started by the launcher{here}"
    if gpus and name is None:
        return f"{count} of {plural(gpus, 'GPU')}"
    device = plural(count, "GPU") if name or on_gpu(config) else "the CPU"
    return f"{count} on {device}" + (f" ({name})" if name else "")


def process_notes(config: Config) -> Iterator[str]:
    """A note if a run has one process for want of GPUs; and what portable kernels cost."""
    node = config["hardware"]
    if node.get("portable"):
        counted = plural(node.get("threads") or 1, "thread")
        yield f"portable: {counted}, and about twice the time of a CPU's own kernels of AVX-512"
    planned = node.get("gpu") not in (None, AUTO) or node.get("memory_gb") is not None
    if node.get("device") == "cuda" and not planned and lacks_gpu():
        yield "no GPU is visible here: this runs where there is one; hardware=auto takes a CPU too"
    if not is_distributed(node) or process_info(node) is not None or node["processes"] > 1:
        return
    if node.get("device") != "cpu" and not visible_gpus():
        yield "no GPU is visible here: one process; hardware.processes=2 starts two on the CPU"
