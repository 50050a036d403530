"""What the bits of a run depend on besides its configuration: threads, CPU, device, batch layout.

Sums are added in an order that follows from the number of threads, from the width of a CPU's
vectors and from how a batch is split, and floating-point sums depend on their order.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from rlfactory.run.checkpoint.checksums import read_manifest, versions
from rlfactory.run.environment import cpu_name

KEY = "numerics"
WORDS = {
    "device": "device",
    "threads": "threads",
    "cpu_capability": "vector instructions of the CPU",
    "micro_batch": "micro_batch",
    "sample_batch": "sample_batch",
    "world_size": "processes",
}
"""What the manifest records, in the words of messages."""


def numerics(device: torch.device, config: Mapping[str, Any], world_size: int) -> dict[str, Any]:
    """What the manifest of a checkpoint records of the process that computes, as plain values."""
    is_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if is_gpu else cpu_name(),
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "micro_batch": config.get("micro_batch"),
        "sample_batch": config.get("sample_batch"),
        "world_size": world_size,
    }


def changes(checkpoint: Path, now: Mapping[str, Any]) -> Iterator[str]:
    """How a process differs from the one that made a checkpoint, a phrase for each difference.

    Args:
        checkpoint: its folder; what its manifest does not record, as of earlier versions, is not
            compared.
        now: the `numerics` of this process.
    """
    manifest = read_manifest(checkpoint)
    yield from differing(manifest.get(KEY) or {}, now, WORDS)
    yield from differing(manifest.get("versions") or {}, versions(), {})


def differing(
    then: Mapping[str, Any], now: Mapping[str, Any], words: Mapping[str, str]
) -> Iterator[str]:
    """A phrase for each value of `then` that is another one now."""
    for name, value in then.items():
        if name in now and now[name] != value:
            yield f"{words.get(name, name)}: {value} then, {now[name]} now"
