"""Which GPU a job gets: no launcher of Hydra's assigns any."""

import os
import shutil
import subprocess
from collections.abc import Sequence


def gpus(asked: Sequence[str] | None = None) -> list[str]:
    """What was asked for, else all that this process may see; torch is not needed to know."""
    if asked is not None:
        return [*asked]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in told.stdout.splitlines() if line.strip().isdecimal()]


def gpu_of(slot: int, names: Sequence[str]) -> str | None:
    """The GPU of the jobs in a slot, one slot after the other."""
    return names[slot % len(names)] if names else None
