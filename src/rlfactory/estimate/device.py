"""How much memory there is to plan for, asked without torch."""

import os
import shutil
import subprocess
from functools import cache

from rlfactory.crossings.base import Config

GIB = 2**30
ROOM = 0.94
"""What of a GPU a run can have: the driver's context and the allocator's gaps take the rest."""


def available(config: Config) -> tuple[float | None, str]:
    """Bytes, and the name of what has them; None where it can't be known here."""
    node = config["hardware"]
    if (given := node.get("memory_gb")) is not None:
        return float(given) * GIB, "the device"
    if node.get("device") != "cpu" and has_gpu():
        return min(gpus()) * 2.0**20, "the GPU"
    if node.get("device") == "cuda":
        return None, "the GPU"
    return ram(), "this machine"


def has_gpu() -> bool:
    """Whether NVIDIA's tool sees one."""
    return bool(gpus())


@cache
def gpus() -> tuple[int, ...]:
    """The memory of each GPU in MiB, by `nvidia-smi`; empty where there is no such program."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    words = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(words, capture_output=True, text=True, timeout=3, check=True).stdout
        return tuple(int(float(line)) for line in said.splitlines() if line.strip())
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()


def ram() -> float | None:
    """The machine's memory in bytes; None where the system doesn't say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return None
