"""How many processes a run has: `hardware.processes=auto` as a number, and a row of the plan."""

from collections.abc import Iterator
from typing import Any

from rlfactory.config.checks.base import Config
from rlfactory.config.memory.devices import named_gpu, on_gpu
from rlfactory.hardware.environment import (
    AUTO,
    auto_processes,
    is_distributed,
    lacks_gpu,
    process_info,
    visible_gpus,
)


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
    count = node["processes"]
    if process_info(node) is not None:  # perhaps on several machines
        return f"{count}, started by the launcher" + (f"; {_counted(gpus)} here" if gpus else "")
    if (name := named_gpu(config)) is not None:
        return f"{count} on {_counted(count)} ({name})"
    if gpus:
        return f"{count} of {_counted(gpus)}"
    return f"{count} on {_counted(count)}" if on_gpu(config) else f"{count} on the CPU"


def process_notes(config: Config) -> Iterator[str]:
    """A note if a run that could have several processes has one, for want of GPUs."""
    node = config["hardware"]
    planned = node.get("gpu") not in (None, AUTO) or node.get("memory_gb") is not None
    if node.get("device") == "cuda" and not planned and lacks_gpu():
        yield "no GPU is visible here: this runs where there is one; hardware=auto takes a CPU too"
    if not is_distributed(node) or process_info(node) is not None or node["processes"] > 1:
        return
    if node.get("device") != "cpu" and not visible_gpus():
        yield "no GPU is visible here: one process; hardware.processes=2 starts two on the CPU"


def _counted(gpus: int) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus} GPUs"
