"""How many processes there are, and what each holds: its samples, and its shard of a network."""

from collections.abc import Iterator
from dataclasses import dataclass
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

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
UNSHARDED_BLOCKS = 3
"""Full blocks that FSDP2 holds while learning: one computes, one is prefetched, one's gradient."""
REDUCED_BYTES = 4.0
"""Bytes of a full block's gradient, which is summed over processes in float32."""


@dataclass(frozen=True)
class ShardedShares:
    """The fraction that one process holds of what all processes hold together; 1 if replicated.

    Attributes:
        samples: of an iteration's samples.
        network: of the network's weights, and of all that follows them where they are trained.
        gathered: bytes of a gathered parameter.
        offloaded: shards, gradients and moments are on the CPU.
        deferred: gradients are in full in each process until an update's last micro-batch.
    """

    samples: float = 1.0
    network: float = 1.0
    gathered: float = 4.0
    offloaded: bool = False
    deferred: bool = False

    @property
    def is_sharded(self) -> bool:
        """Whether the network is sharded at all."""
        return self.network < 1

    @property
    def resident(self) -> float:
        """The fraction of a sharded tensor that is on the device while nothing computes."""
        return 0.0 if self.offloaded else self.network

    def unsharded_network(self, parameters: float) -> float:
        """Bytes of the full network, gathered for passes that ranks make in different numbers.

        The gathered parameters are a copy in the dtype of the passes, beside the own shard.
        """
        return self.gathered * parameters if self.is_sharded else 0.0

    def unsharded_blocks(self, parameters: float, blocks: int) -> float:
        """Bytes of the blocks that are full at once while learning."""
        if not self.is_sharded:
            return 0.0
        return max(self.gathered, REDUCED_BYTES) * parameters * min(UNSHARDED_BLOCKS / blocks, 1.0)


def shares_of(config: Config) -> ShardedShares:
    """What a process holds: its part of the samples and, with `fsdp2`, its shard of the rest."""
    node = config["hardware"]
    processes = processes_of(config)
    if node.get("strategy") != "fsdp2" or processes == 1:
        return ShardedShares(1 / processes)
    dtypes = {BYTES[config["precision"][when]] for when in ("rollout", "learning")}
    return ShardedShares(
        samples=1 / processes,
        network=1 / int(node.get("shard_size") or processes),
        gathered=float(max(dtypes)),
        offloaded=bool(node.get("offload")),
        deferred=bool(node.get("defer_reduce")),
    )


def processes_of(config: Config) -> int:
    """The number of processes; `auto` counts the GPUs that this machine shows, at least one."""
    given = config["hardware"].get("processes", 1)
    return given if isinstance(given, int) else max(len(visible_gpus()), 1)


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
    """A note if a run that could have several processes has one, for want of GPUs; and what
    portable kernels cost.
    """
    node = config["hardware"]
    if node.get("portable"):
        threads = node.get("threads") or 1
        counted = "1 thread" if threads == 1 else f"{threads} threads"
        yield f"portable: {counted}, and about twice the time of a CPU's own kernels of AVX-512"
    planned = node.get("gpu") not in (None, AUTO) or node.get("memory_gb") is not None
    if node.get("device") == "cuda" and not planned and lacks_gpu():
        yield "no GPU is visible here: this runs where there is one; hardware=auto takes a CPU too"
    if not is_distributed(node) or process_info(node) is not None or node["processes"] > 1:
        return
    if node.get("device") != "cpu" and not visible_gpus():
        yield "no GPU is visible here: one process; hardware.processes=2 starts two on the CPU"


def _counted(gpus: int) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus} GPUs"
